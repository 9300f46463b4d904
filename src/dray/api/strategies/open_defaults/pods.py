"""Defaults of pods and pod templates.

Some defaults are those of a pod, and not of a template (`POD_ROWS`): a controller copies its template into
pods, which get them then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from dray.api.strategies.open_defaults.rows import (
    DefaultsRow,
    DocumentDefault,
    DocumentRewrite,
    Holder,
    fill_text,
    prefix_rows,
)
from dray.api.strategies.open_defaults.volumes import VOLUME_CLAIM_SPEC_ROWS, VOLUME_SOURCE_ROWS

CONTAINER_LISTS: Final = ("initContainers", "containers")
_FILE_MODE: Final = 0o644
_TOKEN_SECONDS: Final = 3600

_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_PATH = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:{_DOMAIN}/)?{_PATH}(?:/{_PATH})*(?::(?P<tag>\w[\w.-]{{0,127}}))?"
    r"(?P<digest>@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?",
    re.ASCII,
)
_IDENTIFIER = re.compile("[a-f0-9]{64}")


@lru_cache(maxsize=1024)
def choose_pull_policy(image: str) -> str:
    """`Always` for the tag `latest`, which an image without tag and digest has, too."""
    found = _IMAGE.fullmatch(image)
    if found is None or _IDENTIFIER.fullmatch(image):
        return "IfNotPresent"
    tag = found["tag"] or ("" if found["digest"] else "latest")
    return "Always" if tag == "latest" else "IfNotPresent"


def _choose_image_policy(container: Mapping[str, Any]) -> str:
    return choose_pull_policy(str(container.get("image") or ""))


def _choose_volume_policy(volume: Mapping[str, Any]) -> str:
    return choose_pull_policy(str(volume.get("reference") or ""))


def _has_no_source(volume: Mapping[str, Any]) -> bool:
    return all(value is None for name, value in volume.items() if name != "name")


def _copy_service_account(spec: Holder) -> Holder:
    """Keep `serviceAccount`, the older name, equal to `serviceAccountName`."""
    name, older = spec.get("serviceAccountName"), spec.get("serviceAccount")
    account = name or older
    if not account or (name == account and older == account):
        return spec
    return {**spec, "serviceAccountName": account, "serviceAccount": account}


def _copy_limits_to_requests(resources: Holder) -> Holder:
    limits, requests = resources.get("limits"), resources.get("requests")
    if not isinstance(limits, dict) or not limits:
        return resources
    given = requests if isinstance(requests, dict) else {}
    if limits.keys() <= given.keys():
        return resources
    return {**resources, "requests": {**limits, **given}}


def _open_host_ports(spec: Holder) -> Holder:
    """With the network of the host, a port of a container is one of the host."""
    if spec.get("hostNetwork") is not True:
        return spec
    changed = {name: _add_host_ports(spec.get(name)) for name in CONTAINER_LISTS}
    new = {name: value for name, value in changed.items() if value is not spec.get(name)}
    return {**spec, **new} if new else spec


def _add_host_ports(containers: Any) -> Any:
    if not isinstance(containers, list):
        return containers
    filled = [
        {**each, "ports": [_add_host_port(port) for port in each["ports"]]}
        if isinstance(each, dict) and isinstance(each.get("ports"), list)
        else each
        for each in containers
    ]
    return containers if filled == containers else filled


def _add_host_port(port: Any) -> Any:
    if not isinstance(port, dict) or port.get("hostPort") or not port.get("containerPort"):
        return port
    return {**port, "hostPort": port["containerPort"]}


def _raise_negative_grace(spec: Holder) -> Holder:
    seconds = spec.get("terminationGracePeriodSeconds")
    if not isinstance(seconds, int) or seconds >= 0:
        return spec
    return {**spec, "terminationGracePeriodSeconds": 1}


def _copy_addresses(status: Holder) -> Holder:
    """Keep `podIP` and the first of `podIPs` equal; `podIP` counts when they differ."""
    address, addresses = status.get("podIP"), status.get("podIPs")
    first = addresses[0] if isinstance(addresses, list) and addresses else None
    listed = first.get("ip") if isinstance(first, dict) else None
    if address == listed or not (address or listed):
        return status
    return {**status, "podIPs": [{"ip": address}]} if address else {**status, "podIP": listed}


_HTTP_ROWS: tuple[DefaultsRow, ...] = (fill_text("httpGet.path", "/"), fill_text("httpGet.scheme", "HTTP"))

_PROBE_ROWS: tuple[DefaultsRow, ...] = (
    fill_text("timeoutSeconds", 1),
    fill_text("periodSeconds", 10),
    fill_text("successThreshold", 1),
    fill_text("failureThreshold", 3),
    *_HTTP_ROWS,
    DocumentDefault("grpc.service", ""),
)

_FIELD_REFERENCE_ROWS: tuple[DefaultsRow, ...] = (
    fill_text("fieldRef.apiVersion", "v1"),
    DocumentDefault("resourceFieldRef.divisor", "0"),
)

_CONTAINER_ROWS: tuple[DefaultsRow, ...] = (
    fill_text(
        "imagePullPolicy",
        "Always",
        compute=_choose_image_policy,
        about="for the tag `latest`, otherwise `IfNotPresent`",
    ),
    DocumentDefault("resources", {}),
    fill_text("terminationMessagePath", "/dev/termination-log"),
    fill_text("terminationMessagePolicy", "File"),
    fill_text("ports[].protocol", "TCP"),
    *(
        row
        for probe in ("livenessProbe", "readinessProbe", "startupProbe")
        for row in prefix_rows(probe, _PROBE_ROWS)
    ),
    *prefix_rows("lifecycle.postStart", _HTTP_ROWS),
    *prefix_rows("lifecycle.preStop", _HTTP_ROWS),
    *prefix_rows("env[].valueFrom", _FIELD_REFERENCE_ROWS),
    DocumentDefault("env[].valueFrom.fileKeyRef.optional", False),
)

_VOLUME_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("emptyDir", {}, _has_no_source, "when the volume has no source"),
    DocumentDefault("secret.defaultMode", _FILE_MODE),
    DocumentDefault("configMap.defaultMode", _FILE_MODE),
    DocumentDefault("downwardAPI.defaultMode", _FILE_MODE),
    *prefix_rows("downwardAPI.items[]", _FIELD_REFERENCE_ROWS),
    DocumentDefault("projected.defaultMode", _FILE_MODE),
    DocumentDefault("projected.sources[].serviceAccountToken.expirationSeconds", _TOKEN_SECONDS),
    *prefix_rows("projected.sources[].downwardAPI.items[]", _FIELD_REFERENCE_ROWS),
    fill_text(
        "image.pullPolicy",
        "Always",
        compute=_choose_volume_policy,
        about="for the tag `latest`, otherwise `IfNotPresent`",
    ),
    DocumentDefault("ephemeral.volumeClaimTemplate.metadata", {}),
    *prefix_rows("ephemeral.volumeClaimTemplate.spec", VOLUME_CLAIM_SPEC_ROWS),
    *VOLUME_SOURCE_ROWS,
)

POD_SPEC_ROWS: tuple[DefaultsRow, ...] = (
    fill_text("restartPolicy", "Always"),
    DocumentDefault("terminationGracePeriodSeconds", 30),
    fill_text("dnsPolicy", "ClusterFirst"),
    DocumentDefault("securityContext", {}),
    fill_text("schedulerName", "default-scheduler"),
    *(
        row
        for containers in (*CONTAINER_LISTS, "ephemeralContainers")
        for row in prefix_rows(f"{containers}[]", _CONTAINER_ROWS)
    ),
    *prefix_rows("volumes[]", _VOLUME_ROWS),
    DocumentRewrite(
        "",
        ("serviceAccountName", "serviceAccount"),
        _copy_service_account,
        "each is the other one, `serviceAccountName` when both are given",
    ),
)
"""The defaults of a pod spec, wherever it is."""

POD_TEMPLATE_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("metadata", {}),
    *prefix_rows("spec", POD_SPEC_ROWS),
)

POD_ROWS: tuple[DefaultsRow, ...] = (
    *prefix_rows("spec", POD_SPEC_ROWS),
    DocumentDefault("spec.enableServiceLinks", True),
    DocumentRewrite(
        "spec", ("terminationGracePeriodSeconds",), _raise_negative_grace, "`1` when it is negative"
    ),
    *(
        DocumentRewrite(
            f"spec.{containers}[].resources",
            ("requests",),
            _copy_limits_to_requests,
            "the limits of resources that have no request",
        )
        for containers in CONTAINER_LISTS
    ),
    DocumentRewrite(
        "spec",
        tuple(f"{containers}[].ports[].hostPort" for containers in CONTAINER_LISTS),
        _open_host_ports,
        "`containerPort`, with `hostNetwork`",
    ),
    DocumentRewrite("status", ("podIP", "podIPs"), _copy_addresses, "each from the other one"),
)
"""The defaults of a pod."""
