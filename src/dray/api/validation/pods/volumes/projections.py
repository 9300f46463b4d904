"""Validation of volumes whose files the node writes: config maps, secrets, fields of the pod, tokens,
certificates, and several of them projected into one volume.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from dray.api import limits
from dray.api.fields import FieldPath, forbidden, invalid, not_supported, required, too_long
from dray.api.validation.field_rules import FieldErrors, report_name_faults
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    find_number,
    find_text,
    get_mapping,
    get_text,
    iterate_objects,
    iterate_texts,
)
from dray.api.validation.pods.field_references import (
    VOLUME_FIELDS,
    validate_field_reference,
    validate_resource_reference,
)
from dray.api.validation.pods.label_selectors import validate_label_selector
from dray.api.validation.pods.value_rules import (
    require_texts,
    validate_file_mode,
    validate_ids,
    validate_projected_path,
)
from dray.values.names import check_dns_label, check_dns_subdomain, check_qualified_name, count_bytes


def validate_config_source(source: Document, name_field: str, path: FieldPath) -> FieldErrors:
    """Check a volume with the keys of a config map or secret."""
    yield from require_texts(source, (name_field,), path)
    yield from _validate_owner_and_mode(source, path)
    for position, item in iterate_objects(source, "items"):
        yield from _validate_key_file(item, path.child("items").index(position))


def validate_downward_source(source: Document, path: FieldPath) -> FieldErrors:
    """Check a volume with fields of its pod; errors of the files have the path of the volume."""
    yield from _validate_owner_and_mode(source, path)
    for _, item in iterate_objects(source, "items"):
        yield from _validate_field_file(item, path)


def _validate_owner_and_mode(source: Document, path: FieldPath) -> FieldErrors:
    yield from validate_file_mode(source, "defaultMode", path)
    yield from validate_ids(source, ("defaultUser",), path)


def _validate_key_file(item: Document, path: FieldPath) -> FieldErrors:
    yield from require_texts(item, ("key", "path"), path)
    yield from validate_projected_path(get_text(item, "path"), path.child("path"))
    yield from validate_file_mode(item, "mode", path)
    yield from validate_ids(item, ("user",), path)


def _validate_field_file(item: Document, path: FieldPath) -> FieldErrors:
    yield from require_texts(item, ("path",), path)
    yield from validate_projected_path(get_text(item, "path"), path.child("path"))
    field, resource = find_mapping(item, "fieldRef"), find_mapping(item, "resourceFieldRef")
    if field is not None:
        yield from validate_field_reference(field, VOLUME_FIELDS, path.child("fieldRef"))
        if resource is not None:
            yield invalid(path, "resource", "must have only one of `fieldRef` and `resourceFieldRef`")
    elif resource is not None:
        yield from validate_resource_reference(resource, path.child("resourceFieldRef"), in_volume=True)
    else:
        yield required(path, "must have `fieldRef` or `resourceFieldRef`")
    yield from validate_file_mode(item, "mode", path)
    yield from validate_ids(item, ("user",), path)


# --- projected volumes ---

ProjectionRule: TypeAlias = Callable[[Document, FieldPath, FieldPath], FieldErrors]
"""A rule of one source: the source, its path, and the path of the volume, at which some errors are."""


def validate_projected_source(source: Document, path: FieldPath) -> FieldErrors:
    """Check a volume that is filled from several sources."""
    yield from _validate_owner_and_mode(source, path)
    taken: set[str] = set()
    for position, item in iterate_objects(source, "sources"):
        place = path.child("sources").index(position)
        given = [name for name in _PROJECTIONS if find_mapping(item, name) is not None]
        for name in given:
            rule, list_files = _PROJECTIONS[name]
            yield from rule(item[name], place.child(name), path)
            for file in list_files(item[name]):
                if file in taken:
                    yield invalid(path, file, "two sources write this file")
                taken.add(file)
        if len(given) > 1:
            yield forbidden(
                place, f"must have only one type, not {' and '.join(f'`{name}`' for name in given)}"
            )


def _validate_keys(source: Document, path: FieldPath, _volume: FieldPath) -> FieldErrors:
    yield from require_texts(source, ("name",), path)
    for position, item in iterate_objects(source, "items"):
        yield from _validate_key_file(item, path.child("items").index(position))


def _validate_fields(source: Document, path: FieldPath, _volume: FieldPath) -> FieldErrors:
    for _, item in iterate_objects(source, "items"):
        yield from _validate_field_file(item, path)


_MIN_TOKEN_SECONDS: Final = 600
_MAX_TOKEN_SECONDS: Final = 2**32


def _validate_token(source: Document, path: FieldPath, volume: FieldPath) -> FieldErrors:
    seconds = find_number(source, "expirationSeconds")
    if seconds is not None and not _MIN_TOKEN_SECONDS <= seconds <= _MAX_TOKEN_SECONDS:
        text = f"must be between {_MIN_TOKEN_SECONDS} and {_MAX_TOKEN_SECONDS}, inclusive"
        yield invalid(path.child("expirationSeconds"), seconds, text)
    file = get_text(source, "path")
    if not file:
        yield required(volume.child("path"))
    else:
        yield from validate_projected_path(file, volume.child("path"))
    yield from validate_ids(source, ("user",), path)


def _validate_trust_bundle(source: Document, path: FieldPath, _volume: FieldPath) -> FieldErrors:
    name, signer = find_text(source, "name"), find_text(source, "signerName")
    selector = find_mapping(source, "labelSelector")
    if name is not None and signer is not None:
        yield invalid(path, dict(source), "must have only one of `name` and `signerName`")
    elif name is not None:
        yield from _validate_bundle_name(name, path.child("name"))
        if selector is not None:
            yield invalid(path.child("labelSelector"), dict(selector), "may not be set beside `name`")
    elif signer is not None:
        if not signer:
            yield required(path.child("signerName"))
        yield from _validate_signer(signer, path.child("signerName"))
        if selector is not None:
            yield from validate_label_selector(selector, path.child("labelSelector"))
    else:
        yield required(path, "must have `name` or `signerName`")
    yield from require_texts(source, ("path",), path)
    yield from validate_ids(source, ("user",), path)
    yield from validate_projected_path(get_text(source, "path"), path.child("path"))


def _validate_bundle_name(name: str, path: FieldPath) -> FieldErrors:
    """Check the name of a bundle: that of its signer comes first, with colons for slashes."""
    if not name:
        yield required(path)
    yield from report_name_faults(check_dns_subdomain(name.rpartition(":")[2]), path)


def _validate_signer(name: str, path: FieldPath) -> FieldErrors:
    """Check the name of a signer: a domain, a slash and a path."""
    if not name:
        yield required(path)
        return
    domain, slash, signer = name.partition("/")
    if not slash or "/" in signer:
        yield invalid(path, name, "must be a domain and a path, such as `example.com/signer`")
        return
    wrong_label = next((label for label in domain.split(".") if check_dns_label(label)), None)
    if wrong_label is not None:
        yield from report_name_faults(check_dns_label(wrong_label), path)
    if "." not in domain:
        yield invalid(path, domain, "must have a domain of at least two labels")
    wrong_part = next((part for part in signer.split(".") if check_dns_subdomain(part)), None)
    if wrong_part is not None:
        yield from report_name_faults(check_dns_subdomain(wrong_part), path)


_KEY_TYPES: Final = ("ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072", "RSA4096")
_CERTIFICATE_FILES: Final = ("credentialBundlePath", "keyPath", "certificateChainPath")
_MIN_CERTIFICATE_SECONDS: Final = 3600
_MAX_CERTIFICATE_SECONDS: Final = 91 * 24 * 3600
_MAX_KUBERNETES_SECONDS: Final = 24 * 3600


def _validate_certificate(source: Document, path: FieldPath, _volume: FieldPath) -> FieldErrors:
    signer = get_text(source, "signerName")
    yield from _validate_signer(signer, path.child("signerName"))
    yield from _validate_user_annotations(source, path.child("userAnnotations"))
    yield from validate_ids(source, ("user",), path)
    kind = get_text(source, "keyType")
    if kind not in _KEY_TYPES:
        yield not_supported(path.child("keyType"), kind, _KEY_TYPES)
    seconds = find_number(source, "maxExpirationSeconds")
    of_kubernetes = f".{signer.partition('/')[0]}".endswith(".kubernetes.io")
    most = _MAX_KUBERNETES_SECONDS if of_kubernetes else _MAX_CERTIFICATE_SECONDS
    if seconds is not None and not _MIN_CERTIFICATE_SECONDS <= seconds <= most:
        text = f"must be between {_MIN_CERTIFICATE_SECONDS} and {most}, inclusive"
        yield invalid(path.child("maxExpirationSeconds"), seconds, text)
    files = [name for name in _CERTIFICATE_FILES if get_text(source, name)]
    for name in files:
        yield from validate_projected_path(get_text(source, name), path.child(name))
    if not files:
        yield required(path, f"must have one of {', '.join(f'`{name}`' for name in _CERTIFICATE_FILES)}")


def _validate_user_annotations(source: Document, path: FieldPath) -> FieldErrors:
    size = 0
    for key, value in iterate_texts(source, "userAnnotations"):
        size += count_bytes(key) + count_bytes(value)
        if "/" not in key:
            yield invalid(path, key, "must be a domain and a name, separated by a slash")
        else:
            yield from report_name_faults(check_qualified_name(key.lower()), path)
    if size > limits.ANNOTATION_BYTES:
        yield too_long(path, limits.ANNOTATION_BYTES)


# --- the files of projections ---

FileLister: TypeAlias = Callable[[Document], Iterator[str]]


def _list_items(source: Document) -> Iterator[str]:
    return (get_text(item, "path") for _, item in iterate_objects(source, "items") if get_text(item, "path"))


def _list_no_files(_source: Document) -> Iterator[str]:
    """The file of a token is not compared with the others."""
    return iter(())


def _list_path(source: Document) -> Iterator[str]:
    yield get_text(source, "path")


def _list_certificate_files(source: Document) -> Iterator[str]:
    return (get_text(source, name) for name in _CERTIFICATE_FILES if get_text(source, name))


_PROJECTIONS: Final[Mapping[str, tuple[ProjectionRule, FileLister]]] = MappingProxyType(
    {
        "secret": (_validate_keys, _list_items),
        "configMap": (_validate_keys, _list_items),
        "downwardAPI": (_validate_fields, _list_items),
        "serviceAccountToken": (_validate_token, _list_no_files),
        "clusterTrustBundle": (_validate_trust_bundle, _list_path),
        "podCertificate": (_validate_certificate, _list_certificate_files),
    }
)
"""The types of sources: the rule of each, and the files it writes."""


def iterate_token_sources(spec: Document) -> Iterator[tuple[int, int]]:
    """Yield the positions of the volumes and sources that need a service account."""
    for position, volume in iterate_objects(spec, "volumes"):
        for index, source in iterate_objects(get_mapping(volume, "projected"), "sources"):
            if find_mapping(source, "serviceAccountToken") is not None:
                yield position, index
