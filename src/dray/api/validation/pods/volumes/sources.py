"""Validation of volumes: their names, and exactly one source of each.

Theory of operation: `_SOURCE_TABLE` has one row for every type of volume, in the order of Kubernetes. The
first source of a volume is checked; every other one is refused unseen. Most types only have required members.
A few paths in errors are not those of the fields, because clients know them so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from dray.api.fields import (
    FieldError,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from dray.api.validation.field_rules import FieldErrors, report_name_faults
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    find_number,
    find_quantity,
    find_text,
    get_list,
    get_mapping,
    get_number,
    get_text,
    is_true,
    iterate_objects,
)
from dray.api.validation.pods.value_rules import (
    require_texts,
    validate_choice,
    validate_descending_path,
    validate_file_mode,
    validate_given_choice,
    validate_optional_name,
    validate_path_without_backsteps,
    validate_range,
)
from dray.api.validation.pods.volumes.claim_template import validate_claim_template
from dray.api.validation.pods.volumes.projections import (
    validate_config_source,
    validate_downward_source,
    validate_projected_source,
)
from dray.values.names import check_dns_label, check_dns_subdomain, count_bytes

VolumeRule: TypeAlias = Callable[[Document, FieldPath], FieldErrors]


def validate_volumes(
    spec: Document, pod_name: str, path: FieldPath
) -> tuple[list[FieldError], dict[str, Document]]:
    """Check the volumes of a pod; returns the errors, and the valid volumes by name."""
    errors: list[FieldError] = []
    known: dict[str, Document] = {}
    volumes = list(iterate_objects(spec, "volumes"))
    generated = {
        f"{pod_name}-{get_text(volume, 'name')}"
        for _, volume in volumes
        if pod_name and find_mapping(volume, "ephemeral") is not None
    }
    for position, volume in volumes:
        place, name = path.index(position), get_text(volume, "name")
        found = [
            *_validate_source(volume, pod_name, place),
            *_validate_name(name, known, place.child("name")),
        ]
        if found:
            errors += found
        else:
            known[name] = volume
        claim = get_text(get_mapping(volume, "persistentVolumeClaim"), "claimName")
        if claim in generated:
            text = "is the claim that is made for an ephemeral volume of this pod"
            errors.append(invalid(place.child("persistentVolumeClaim", "claimName"), claim, text))
    return errors, known


def _validate_name(name: str, known: Mapping[str, Document], path: FieldPath) -> FieldErrors:
    if not name:
        yield required(path)
    elif faults := check_dns_label(name):
        yield from report_name_faults(faults, path)
    if name in known:
        yield duplicate(path, name)


def _validate_source(volume: Document, pod_name: str, path: FieldPath) -> FieldErrors:
    given = [_SOURCES[field] for field in _SOURCES.keys() & volume.keys() if isinstance(volume[field], dict)]
    if not given:
        yield required(path, "must have a type, such as `emptyDir` or `configMap`")
        return
    if len(given) > 1:
        given.sort(key=_SOURCE_TABLE.index)
    first, *others = given
    yield from first.rule(volume[first.field], path.child(first.checked_as or first.field))
    for source in others:
        yield forbidden(
            path.child(source.refused_as or source.field), f"may not be set beside `{first.field}`"
        )
    name = get_text(volume, "name")
    if first.field == "ephemeral" and pod_name and name:
        for fault in check_dns_subdomain(f"{pod_name}-{name}"):
            text = f"the claim made for this volume would be called `{pod_name}-{name}`: {fault.text}"
            yield invalid(path.child("name"), name, text)
    if find_text(get_mapping(volume, "iscsi"), "initiatorName") is not None:
        yield from _validate_target_name(name, volume["iscsi"], path)


def _validate_target_name(name: str, iscsi: Document, path: FieldPath) -> FieldErrors:
    if count_bytes(f"{name}:{get_text(iscsi, 'targetPortal')}") > _MAX_TARGET_NAME:
        text = f"must have at most {_MAX_TARGET_NAME} bytes together with `:` and `iscsi.targetPortal`"
        yield invalid(path.child("name"), name, text)


_MAX_TARGET_NAME: Final = 64


# --- rules of types ---


def _require(*names: str) -> VolumeRule:
    return lambda source, path: require_texts(source, names, path)


def _validate_empty_dir(source: Document, path: FieldPath) -> FieldErrors:
    limit = find_quantity(source, "sizeLimit")
    if limit is not None and limit.nanos < 0:
        yield forbidden(path.child("sizeLimit"), "must not be negative")
    yield from validate_file_mode(source, "mode", path, 0o1777)


_HOST_PATH_TYPES: Final = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)


def _validate_host_path(source: Document, path: FieldPath) -> FieldErrors:
    target = get_text(source, "path")
    if not target:
        yield required(path.child("path"))
        return
    yield from validate_path_without_backsteps(target, path.child("path"))
    yield from validate_given_choice(source, "type", _HOST_PATH_TYPES, path)


def _validate_git_repo(source: Document, path: FieldPath) -> FieldErrors:
    yield from require_texts(source, ("repository",), path)
    yield from validate_descending_path(get_text(source, "directory"), path.child("directory"))


def _require_disk(name: str) -> VolumeRule:
    def validate(source: Document, path: FieldPath) -> FieldErrors:
        yield from require_texts(source, (name,), path)
        yield from validate_range(get_number(source, "partition"), 0, 255, path.child("partition"))

    return validate


def _validate_secret(source: Document, path: FieldPath) -> FieldErrors:
    return validate_config_source(source, "secretName", path)


def _validate_config_map(source: Document, path: FieldPath) -> FieldErrors:
    return validate_config_source(source, "name", path)


def _validate_nfs(source: Document, path: FieldPath) -> FieldErrors:
    yield from require_texts(source, ("server", "path"), path)
    if not get_text(source, "path").startswith("/"):
        yield invalid(path.child("path"), get_text(source, "path"), "must be an absolute path")


_INITIATORS: Final = (
    re.compile(r"iqn\.[0-9]{4}-[0-9]{2}\.[-.0-9A-Za-z]+:[^,;*&$|\s]+"),
    re.compile(r"eui.[0-9A-Za-z]{16}"),
    re.compile(r"naa.[0-9A-Za-z]{32}"),
)


def _is_initiator_name(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in _INITIATORS)


def _validate_iscsi(source: Document, path: FieldPath) -> FieldErrors:
    yield from require_texts(source, ("targetPortal", "iqn"), path)
    target, initiator = get_text(source, "iqn"), find_text(source, "initiatorName")
    if target and not _is_initiator_name(target):
        yield invalid(path.child("iqn"), target, "must be a name beginning with `iqn`, `eui` or `naa`")
    yield from validate_range(get_number(source, "lun"), 0, 255, path.child("lun"))
    authenticates = is_true(source, "chapAuthDiscovery") or is_true(source, "chapAuthSession")
    if authenticates and find_mapping(source, "secretRef") is None:
        yield required(path.child("secretRef"))
    if initiator is not None and not _is_initiator_name(initiator):
        text = "must be a name beginning with `iqn`, `eui` or `naa`"
        yield invalid(path.child("initiatorname"), initiator, text)


def _validate_flocker(source: Document, path: FieldPath) -> FieldErrors:
    name, uuid = get_text(source, "datasetName"), get_text(source, "datasetUUID")
    if not name and not uuid:
        yield required(path, "must have `datasetName` or `datasetUUID`")
    if name and uuid:
        yield invalid(path, "resource", "must have only one of `datasetName` and `datasetUUID`")
    if "/" in name:
        yield invalid(path.child("datasetName"), name, "must not contain '/'")


def _validate_fibre_channel(source: Document, path: FieldPath) -> FieldErrors:
    names, ids = get_list(source, "targetWWNs"), get_list(source, "wwids")
    if not names and not ids:
        yield required(path.child("targetWWNs"), "must have `targetWWNs` or `wwids`")
    if names and ids:
        yield invalid(path.child("targetWWNs"), names, "must have only one of `targetWWNs` and `wwids`")
    lun = find_number(source, "lun")
    if names and lun is None:
        yield required(path.child("lun"), "is needed for `targetWWNs`")
    elif names and lun is not None:
        yield from validate_range(lun, 0, 255, path.child("lun"))


def _validate_quobyte(source: Document, path: FieldPath) -> FieldErrors:
    registry = get_text(source, "registry")
    if not registry:
        yield required(path.child("registry"))
    elif len(get_text(source, "tenant")) > 64:
        yield required(path.child("tenant"), "must have at most 64 characters")
    else:
        for pair in registry.split(","):
            if not _HOST_AND_PORT.fullmatch(pair):
                yield invalid(
                    path.child("registry"), registry, "must be pairs `host:port`, separated by commas"
                )
    yield from require_texts(source, ("volume",), path)


_HOST_AND_PORT = re.compile(r"([^:\[\]]*|\[[^\[\]]*\]):[^:\[\]]*")
_RESERVED_OPTIONS: Final = (".kubernetes.io", ".k8s.io")


def _validate_flex(source: Document, path: FieldPath) -> FieldErrors:
    yield from require_texts(source, ("driver",), path)
    for key in get_mapping(source, "options"):
        if f".{key.partition('/')[0].lower()}".endswith(_RESERVED_OPTIONS):
            yield invalid(path.child("options").key(key), key, "`kubernetes.io` and `k8s.io` are reserved")


_CACHING_MODES: Final = ("None", "ReadOnly", "ReadWrite")
_DISK_KINDS: Final = ("Dedicated", "Managed", "Shared")


def _validate_azure_disk(source: Document, path: FieldPath) -> FieldErrors:
    yield from require_texts(source, ("diskName", "diskURI"), path)
    yield from validate_given_choice(source, "cachingMode", _CACHING_MODES, path)
    yield from validate_given_choice(source, "kind", _DISK_KINDS, path)
    kind, address = get_text(source, "kind") or "Shared", get_text(source, "diskURI")
    expected = "/subscriptions/" if kind == "Managed" else "https://"
    if not address.startswith(expected):
        yield not_supported(path.child("diskURI"), address, (f"{expected}...",))


def _require_named_secret(source: Document, path: FieldPath) -> FieldErrors:
    secret = find_mapping(source, "secretRef")
    if secret is not None and not get_text(secret, "name"):
        yield required(path.child("secretRef", "name"))


def _validate_cinder(source: Document, path: FieldPath) -> FieldErrors:
    yield from require_texts(source, ("volumeID",), path)
    yield from _require_named_secret(source, path)


def _validate_storage_os(source: Document, path: FieldPath) -> FieldErrors:
    yield from require_texts(source, ("volumeName",), path)
    for field in ("volumeName", "volumeNamespace"):
        yield from validate_optional_name(source, field, check_dns_label, path)
    yield from _require_named_secret(source, path)


_MAX_CSI_DRIVER: Final = 63


def _validate_csi(source: Document, path: FieldPath) -> FieldErrors:
    driver, secret = get_text(source, "driver"), find_mapping(source, "nodePublishSecretRef")
    if not driver:
        yield required(path.child("driver"))
    else:
        if count_bytes(driver) > _MAX_CSI_DRIVER:
            yield too_long(path.child("driver"), _MAX_CSI_DRIVER)
        yield from report_name_faults(check_dns_subdomain(driver.lower()), path.child("driver"))
    if secret is not None:
        name = get_text(secret, "name")
        if not name:
            yield required(path.child("nodePublishSecretRef", "name"))
        else:
            yield from report_name_faults(check_dns_subdomain(name), path.child("name"))


def _validate_ephemeral(source: Document, path: FieldPath) -> FieldErrors:
    template = find_mapping(source, "volumeClaimTemplate")
    if template is None:
        yield required(path.child("volumeClaimTemplate"))
    else:
        yield from validate_claim_template(template, path.child("volumeClaimTemplate"))


def _validate_image(source: Document, path: FieldPath) -> FieldErrors:
    yield from require_texts(source, ("reference",), path)
    yield from validate_choice(source, "pullPolicy", ("Always", "IfNotPresent", "Never"), path)


@dataclass(frozen=True, slots=True)
class _VolumeSource:
    """One type of volume: its field, its rule, and where its errors are reported if not at the field."""

    field: str
    rule: VolumeRule
    checked_as: str = ""
    refused_as: str = ""


_SOURCE_TABLE: Final = (
    _VolumeSource("emptyDir", _validate_empty_dir),
    _VolumeSource("hostPath", _validate_host_path),
    _VolumeSource("gitRepo", _validate_git_repo),
    _VolumeSource("gcePersistentDisk", _require_disk("pdName"), checked_as="persistentDisk"),
    _VolumeSource("awsElasticBlockStore", _require_disk("volumeID")),
    _VolumeSource("secret", _validate_secret),
    _VolumeSource("nfs", _validate_nfs),
    _VolumeSource("iscsi", _validate_iscsi),
    _VolumeSource("glusterfs", _require("endpoints", "path")),
    _VolumeSource("flocker", _validate_flocker),
    _VolumeSource("persistentVolumeClaim", _require("claimName")),
    _VolumeSource("rbd", _require("monitors", "image")),
    _VolumeSource("cinder", _validate_cinder),
    _VolumeSource("cephfs", _require("monitors"), refused_as="cephFS"),
    _VolumeSource("quobyte", _validate_quobyte),
    _VolumeSource("downwardAPI", validate_downward_source, refused_as="downwarAPI"),
    _VolumeSource("fc", _validate_fibre_channel),
    _VolumeSource("flexVolume", _validate_flex),
    _VolumeSource("configMap", _validate_config_map),
    _VolumeSource("azureFile", _require("secretName", "shareName")),
    _VolumeSource("vsphereVolume", _require("volumePath")),
    _VolumeSource("photonPersistentDisk", _require("pdID")),
    _VolumeSource("portworxVolume", _require("volumeID")),
    _VolumeSource("azureDisk", _validate_azure_disk),
    _VolumeSource("storageos", _validate_storage_os),
    _VolumeSource("projected", validate_projected_source),
    _VolumeSource("scaleIO", _require("gateway", "system", "volumeName")),
    _VolumeSource("csi", _validate_csi),
    _VolumeSource("ephemeral", _validate_ephemeral),
    _VolumeSource("image", _validate_image),
)
_SOURCES: Final = {source.field: source for source in _SOURCE_TABLE}
