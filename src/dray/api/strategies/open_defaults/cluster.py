"""Defaults of nodes, namespaces, rights, limits, policies of admission and flow control, and extensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dray.api.strategies.open_defaults.rows import (
    DefaultsRow,
    DocumentDefault,
    DocumentRewrite,
    Holder,
    fill_text,
    prefix_rows,
)

_RBAC: Final = "rbac.authorization.k8s.io"
_STATUS_ROW: Final = DocumentDefault("status", {})

STATUS_ROWS: tuple[DefaultsRow, ...] = (_STATUS_ROW,)
"""For kinds that always have a status and no other default."""


def _copy_capacity(status: Holder) -> Holder:
    capacity = status.get("capacity")
    if capacity is None or status.get("allocatable") is not None:
        return status
    return {**status, "allocatable": capacity}


_NODE_INFO: Final = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)

NODE_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("spec", {}),
    _STATUS_ROW,
    DocumentRewrite("status", ("allocatable",), _copy_capacity, "`capacity`"),
    DocumentDefault("status.daemonEndpoints", {}),
    DocumentDefault("status.daemonEndpoints.kubeletEndpoint", {}),
    DocumentDefault("status.daemonEndpoints.kubeletEndpoint.Port", 0),
    DocumentDefault("status.nodeInfo", {}),
    *(DocumentDefault(f"status.nodeInfo.{name}", "") for name in _NODE_INFO),
)

NAMESPACE_ROWS: tuple[DefaultsRow, ...] = (_STATUS_ROW, fill_text("status.phase", "Active"))

SECRET_ROWS: tuple[DefaultsRow, ...] = (fill_text("type", "Opaque"),)

LEASE_ROWS: tuple[DefaultsRow, ...] = (DocumentDefault("spec", {}),)

EVENT_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("source", {}),
    DocumentDefault("reportingComponent", ""),
    DocumentDefault("reportingInstance", ""),
)


def _default_limits(item: Holder) -> Holder:
    """The limits and requests that containers get, from those that they must keep."""
    if item.get("type") != "Container":
        return item
    maximum, minimum, limit, request = (
        value if isinstance(value := item.get(name), dict) else {}
        for name in ("max", "min", "default", "defaultRequest")
    )
    limits = {**maximum, **limit}
    requests = {**minimum, **limits, **request}
    if limits == limit and requests == request:
        return item
    filled = {**item, "default": limits, "defaultRequest": requests}
    return {
        name: value for name, value in filled.items() if value or name not in ("default", "defaultRequest")
    }


LIMIT_RANGE_ROWS: tuple[DefaultsRow, ...] = (
    DocumentRewrite(
        "spec.limits[]",
        ("default", "defaultRequest"),
        _default_limits,
        "for containers, `default` is `max`, and `defaultRequest` is `default`, otherwise `min`",
    ),
)


def _is_user_or_group(subject: Mapping[str, Any]) -> bool:
    return subject.get("kind") in ("User", "Group")


BINDING_ROWS: tuple[DefaultsRow, ...] = (
    fill_text("roleRef.apiGroup", _RBAC),
    fill_text("subjects[].apiGroup", _RBAC, when=_is_user_or_group, about="for users and groups"),
)

_MATCH_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("matchPolicy", "Equivalent"),
    DocumentDefault("namespaceSelector", {}),
    DocumentDefault("objectSelector", {}),
    DocumentDefault("resourceRules[].scope", "*"),
    DocumentDefault("excludeResourceRules[].scope", "*"),
)

ADMISSION_POLICY_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("spec.failurePolicy", "Fail"),
    *prefix_rows("spec.matchConstraints", _MATCH_ROWS),
    _STATUS_ROW,
)

ADMISSION_POLICY_BINDING_ROWS: tuple[DefaultsRow, ...] = prefix_rows("spec.matchResources", _MATCH_ROWS)

FLOW_SCHEMA_ROWS: tuple[DefaultsRow, ...] = (fill_text("spec.matchingPrecedence", 1000), _STATUS_ROW)

PRIORITY_LEVEL_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("spec.exempt.nominalConcurrencyShares", 0),
    DocumentDefault("spec.exempt.lendablePercent", 0),
    DocumentDefault("spec.limited.nominalConcurrencyShares", 30),
    DocumentDefault("spec.limited.lendablePercent", 0),
    fill_text("spec.limited.limitResponse.queuing.handSize", 8),
    fill_text("spec.limited.limitResponse.queuing.queues", 64),
    fill_text("spec.limited.limitResponse.queuing.queueLengthLimit", 50),
    _STATUS_ROW,
)


def _choose_singular(names: Mapping[str, Any]) -> str | None:
    kind = names.get("kind")
    return kind.lower() if isinstance(kind, str) and kind else None


def _choose_list_kind(names: Mapping[str, Any]) -> str | None:
    kind = names.get("kind")
    return f"{kind}List" if isinstance(kind, str) and kind else None


def _store_version(definition: Holder) -> Holder:
    """The versions in which objects are stored: at first the one that is marked."""
    spec, status = definition.get("spec"), definition.get("status")
    if not isinstance(spec, dict) or not isinstance(status, dict) or status.get("storedVersions"):
        return definition
    versions = spec.get("versions")
    marked = [
        each.get("name")
        for each in (versions if isinstance(versions, list) else ())
        if isinstance(each, dict) and each.get("storage") is True
    ]
    return {**definition, "status": {**status, "storedVersions": marked[:1]}} if marked else definition


CUSTOM_RESOURCE_DEFINITION_ROWS: tuple[DefaultsRow, ...] = (
    fill_text("spec.names.singular", "kind", compute=_choose_singular, about="in lower case"),
    fill_text("spec.names.listKind", "kind", compute=_choose_list_kind, about="with `List` behind it"),
    DocumentDefault("spec.conversion", {"strategy": "None"}),
    DocumentDefault("spec.conversion.webhook.clientConfig.service.port", 443),
    _STATUS_ROW,
    DocumentRewrite("", ("status.storedVersions",), _store_version, "the version with `storage`"),
)

API_SERVICE_ROWS: tuple[DefaultsRow, ...] = (DocumentDefault("spec.service.port", 443), _STATUS_ROW)

POD_CERTIFICATE_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("spec.maxExpirationSeconds", 86400),
    _STATUS_ROW,
)
