"""Validation of ConfigMaps and Secrets: keys, size, what a type of secret needs, and immutability."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from dray.api import limits
from dray.api.fields import ROOT, forbidden, invalid, required, too_long
from dray.api.json_text import read_json
from dray.api.validation.field_rules import FieldErrors, validate_immutable
from dray.api.validation.pods.document_fields import (
    Document,
    get_mapping,
    get_text,
    is_true,
    iterate_texts,
)
from dray.api.validation.pods.value_rules import validate_config_key
from dray.errors import DecodeError
from dray.values.names import count_bytes

_DATA: Final = ROOT.child("data")
_BINARY: Final = ROOT.child("binaryData")
_ACCOUNT_ANNOTATION: Final = "kubernetes.io/service-account.name"
_IMMUTABLE: Final = "field is immutable when `immutable` is set"


def validate_config_map(config: Document) -> FieldErrors:
    """Check the keys and the size of a ConfigMap."""
    plain, binary = get_mapping(config, "data"), get_mapping(config, "binaryData")
    for key in plain:
        yield from validate_config_key(key, _DATA.key(key))
        if key in binary:
            yield invalid(_DATA.key(key), key, "is also a key of `binaryData`")
    for key in binary:
        yield from validate_config_key(key, _BINARY.key(key))
    size = sum(count_bytes(value) for _, value in iterate_texts(config, "data"))
    if size + sum(_list_decoded_sizes(config, "binaryData")) > limits.CONFIG_DATA_BYTES:
        yield too_long(ROOT.child("[]"), limits.CONFIG_DATA_BYTES)


def _list_decoded_sizes(document: Document, field: str) -> Iterator[int]:
    """Yield the sizes of values that are base64."""
    for _, value in iterate_texts(document, field):
        yield len(value) * 3 // 4 - value[-2:].count("=")


def validate_changed_config_map(new: Document, old: Document) -> FieldErrors:
    """Check a change of a ConfigMap."""
    yield from _validate_frozen(new, old, ("data", "binaryData"))
    yield from validate_config_map(new)


def _validate_frozen(new: Document, old: Document, fields: tuple[str, ...]) -> FieldErrors:
    """Check that an immutable object stays as it is."""
    if not is_true(old, "immutable"):
        return
    if not is_true(new, "immutable"):
        yield forbidden(ROOT.child("immutable"), _IMMUTABLE)
    for field in fields:
        if get_mapping(new, field) != get_mapping(old, field):
            yield forbidden(ROOT.child(field), _IMMUTABLE)


# --- secrets ---


def validate_secret(secret: Document) -> FieldErrors:
    """Check the keys and the size of a Secret, and what its type needs."""
    for key in get_mapping(secret, "data"):
        yield from validate_config_key(key, _DATA.key(key))
    if sum(_list_decoded_sizes(secret, "data")) > limits.CONFIG_DATA_BYTES:
        yield too_long(_DATA, limits.CONFIG_DATA_BYTES)
    rule = _TYPE_RULES.get(get_text(secret, "type"))
    if rule is not None:
        yield from rule(secret)


def validate_changed_secret(new: Document, old: Document) -> FieldErrors:
    """Check a change of a Secret: its type stays."""
    yield from validate_immutable(_get_type(new), _get_type(old), ROOT.child("type"))
    yield from _validate_frozen(new, old, ("data",))
    yield from validate_secret(new)


def _get_type(secret: Document) -> str:
    return get_text(secret, "type") or "Opaque"


def _require_keys(*keys: str) -> Callable[[Document], FieldErrors]:
    def validate(secret: Document) -> FieldErrors:
        for key in keys:
            if key not in get_mapping(secret, "data"):
                yield required(_DATA.key(key))

    return validate


def _require_some_key(*keys: str) -> Callable[[Document], FieldErrors]:
    def validate(secret: Document) -> FieldErrors:
        if not get_mapping(secret, "data").keys() & set(keys):
            yield from _require_keys(*keys)(secret)

    return validate


def _require_json(key: str) -> Callable[[Document], FieldErrors]:
    def validate(secret: Document) -> FieldErrors:
        yield from _require_keys(key)(secret)
        value = get_mapping(secret, "data").get(key)
        if isinstance(value, str) and not _is_json_object(value):
            yield invalid(_DATA.key(key), "<secret contents redacted>", "must be a JSON object")

    return validate


def _is_json_object(encoded: str) -> bool:
    try:
        return isinstance(read_json(base64.b64decode(encoded)), dict)
    except (DecodeError, binascii.Error):
        return False


def _require_private_key(secret: Document) -> FieldErrors:
    if not get_mapping(secret, "data").get("ssh-privatekey"):
        yield required(_DATA.key("ssh-privatekey"))


def _require_account(secret: Document) -> FieldErrors:
    annotations = get_mapping(get_mapping(secret, "metadata"), "annotations")
    if not annotations.get(_ACCOUNT_ANNOTATION):
        yield required(ROOT.child("metadata").child("annotations").key(_ACCOUNT_ANNOTATION))


_TYPE_RULES: Final[Mapping[str, Callable[[Document], FieldErrors]]] = MappingProxyType(
    {
        "kubernetes.io/service-account-token": _require_account,
        "kubernetes.io/dockercfg": _require_json(".dockercfg"),
        "kubernetes.io/dockerconfigjson": _require_json(".dockerconfigjson"),
        "kubernetes.io/basic-auth": _require_some_key("username", "password"),
        "kubernetes.io/ssh-auth": _require_private_key,
        "kubernetes.io/tls": _require_keys("tls.crt", "tls.key"),
    }
)
"""What each type of secret must contain; other types are free."""
