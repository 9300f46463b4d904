"""Rules for single values of pods: choices, numbers, ids, ports, paths, addresses, and names of variables."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from dray.api.fields import FieldPath, invalid, not_supported, required
from dray.api.validation.field_rules import FieldErrors, report_name_faults
from dray.api.validation.pods.document_fields import Document, find_number, find_text, get_text
from dray.values.names import NameRule, check_label_value, check_qualified_name

MAX_INT32: Final = 2**31 - 1
MAX_FILE_MODE: Final = 0o777

NOT_NEGATIVE: Final = "must be greater than or equal to 0"
POSITIVE: Final = "must be greater than zero"


# --- choices ---


def validate_choice(
    document: Document, name: str, supported: tuple[str, ...], path: FieldPath
) -> FieldErrors:
    """Check a value of a closed set; an empty one stands for the default."""
    value = get_text(document, name)
    if value and value not in supported:
        yield not_supported(path.child(name), value, supported)


def validate_given_choice(
    document: Document, name: str, supported: tuple[str, ...], path: FieldPath
) -> FieldErrors:
    """Check a value of a closed set that has no default: an empty text is none of it."""
    value = find_text(document, name)
    if value is not None and value not in supported:
        yield not_supported(path.child(name), value, supported)


# --- texts and names ---


def require_texts(document: Document, names: Iterable[str], path: FieldPath) -> FieldErrors:
    """Check that fields are set."""
    for name in names:
        if not document.get(name):
            yield required(path.child(name))


def validate_optional_name(document: Document, name: str, rule: NameRule, path: FieldPath) -> FieldErrors:
    """Check a name that may be left out or empty."""
    value = get_text(document, name)
    if value and (faults := rule(value)):
        yield from report_name_faults(faults, path.child(name))


def validate_labels(labels: Document, path: FieldPath) -> FieldErrors:
    """Check the keys and values of labels; an error has the path of the map."""
    for key, value in labels.items():
        if isinstance(value, str) and (faults := check_qualified_name(key) + check_label_value(value)):
            yield from report_name_faults(faults, path)


_PORT_NAME_RULES: Final = (
    (re.compile(r".{0,15}", re.DOTALL), "must be no more than 15 bytes"),
    (re.compile(r"[-a-z0-9]+"), "must contain only lower case letters, digits and '-'"),
    (re.compile(r".*[a-z].*", re.DOTALL), "must contain a letter"),
    (re.compile(r"(?!.*--).*", re.DOTALL), "must not contain '--'"),
    (re.compile(r"(?!-).*(?<!-)", re.DOTALL), "must not begin or end with '-'"),
)


def validate_port_name(name: str, path: FieldPath) -> FieldErrors:
    """Check the name of a port."""
    for pattern, text in _PORT_NAME_RULES:
        if not pattern.fullmatch(name):
            yield invalid(path, name, text)


def validate_variable_name(name: str, path: FieldPath) -> FieldErrors:
    """Check the name of an environment variable: printable ASCII without `=`."""
    if not (name.isascii() and name.isprintable()) or "=" in name:
        yield invalid(path, name, "must consist of printable ASCII characters other than '='")


_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")


def validate_config_key(key: str, path: FieldPath) -> FieldErrors:
    """Check a key of a config map or secret."""
    if len(key) > 253:
        yield invalid(path, key, "must be no more than 253 bytes")
    if not _CONFIG_KEY.fullmatch(key):
        yield invalid(path, key, "must consist of letters, digits, '-', '_' and '.'")
    if key == "." or key.startswith(".."):
        yield invalid(path, key, "must not be '.' or begin with '..'")


# --- numbers ---


def validate_range(value: int, low: int, high: int, path: FieldPath) -> FieldErrors:
    """Check that a number is between two others, inclusive."""
    if not low <= value <= high:
        yield invalid(path, value, f"must be between {low} and {high}, inclusive")


def validate_not_negative(document: Document, names: Iterable[str], path: FieldPath) -> FieldErrors:
    """Check fields that count something."""
    for name in names:
        value = find_number(document, name)
        if value is not None and value < 0:
            yield invalid(path.child(name), value, NOT_NEGATIVE)


def validate_ids(document: Document, names: Iterable[str], path: FieldPath) -> FieldErrors:
    """Check ids of users and groups."""
    for name in names:
        value = find_number(document, name)
        if value is not None:
            yield from validate_range(value, 0, MAX_INT32, path.child(name))


def validate_file_mode(
    document: Document, name: str, path: FieldPath, most: int = MAX_FILE_MODE
) -> FieldErrors:
    """Check the permission bits of a file."""
    mode = find_number(document, name)
    if mode is not None and not 0 <= mode <= most:
        yield invalid(path.child(name), mode, f"must be between 0 and 0{most:o} (octal), inclusive")


def validate_port_number(port: int, path: FieldPath) -> FieldErrors:
    """Check the number of a port."""
    return validate_range(port, 1, 65535, path)


def validate_port_reference(port: Any, path: FieldPath) -> FieldErrors:
    """Check a port that is named by its number or its name; an absent one is number 0."""
    if isinstance(port, str):
        yield from validate_port_name(port, path)
    elif port is None or (isinstance(port, int) and not isinstance(port, bool)):
        yield from validate_port_number(port or 0, path)


# --- paths and addresses ---


def validate_descending_path(text: str, path: FieldPath) -> FieldErrors:
    """Check a relative path that does not leave its directory."""
    if text.startswith("/"):
        yield invalid(path, text, "must be a relative path")
    yield from validate_path_without_backsteps(text, path)


def validate_path_without_backsteps(text: str, path: FieldPath) -> FieldErrors:
    """Check that no part of a path is `..`."""
    if ".." in text.split("/"):
        yield invalid(path, text, "must not contain '..'")


def validate_projected_path(text: str, path: FieldPath) -> FieldErrors:
    """Check the path of a file in a volume: relative, and not one of the hidden names beginning with `..`."""
    yield from validate_descending_path(text, path)
    if text.startswith("..") and not text.startswith("../"):
        yield invalid(path, text, "must not begin with '..'")


def is_ip_address(text: str) -> bool:
    """Whether a text is an address in the notation that every program reads the same way."""
    return len(text) <= _MAX_ADDRESS_LENGTH and _is_short_address(text)


_MAX_ADDRESS_LENGTH: Final = 45


@lru_cache(maxsize=4096)
def _is_short_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text and not (address.version == 6 and address.ipv4_mapped is not None)


def validate_ip_address(text: str, path: FieldPath) -> FieldErrors:
    """Check an IP address."""
    if not is_ip_address(text):
        yield invalid(path, text, "must be an IPv4 or IPv6 address, for example `10.9.8.7` or `2001:db8::1`")
