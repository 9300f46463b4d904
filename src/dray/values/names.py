"""Name rules of Kubernetes: names of devices, attributes, pools, labels and other objects.

Each rule takes a name and returns its faults, none for a valid name. The texts are those of Kubernetes. A
fault also carries the part of the name it is about, which an error quotes, and `too_long`, the limit in
bytes, when Kubernetes reports it as too long rather than as invalid. Whether an absent name is allowed is the
caller's decision: an empty text is a name that breaks most rules.

Names repeat thousands of times in a cluster, so the rules cache their results, but only for names of usual
length: long invalid names cannot fill the memory.

One rule is stricter than in Kubernetes: an attribute name with two slashes is refused (`x.io/a/b`), where
Kubernetes checks neither part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import TypeAlias

MAX_LABEL = 63
MAX_SUBDOMAIN = 253
MAX_LABEL_NAME = 63
MAX_LABEL_VALUE = 63
MAX_DRIVER = 63
MAX_POOL = 253
MAX_DOMAIN = MAX_DRIVER
MAX_ID = 32

_MAX_POOL_PARTS = (MAX_POOL + 1) // 2


@dataclass(frozen=True, slots=True)
class NameFault:
    """One fault of a name: its text, the part it is about, and the limit when that part is too long."""

    text: str
    value: str
    too_long: int | None = None

    def __str__(self) -> str:
        return self.text


NameFaults: TypeAlias = tuple[NameFault, ...]
NameRule: TypeAlias = Callable[[str], NameFaults]

_MAX_CACHED_LENGTH = 320
_NONE: NameFaults = ()


def _cache_rule(rule: NameRule) -> NameRule:
    cached = lru_cache(maxsize=8192)(rule)

    @wraps(rule)
    def answer(name: str) -> NameFaults:
        return cached(name) if len(name) <= _MAX_CACHED_LENGTH else rule(name)

    return answer


class _NamePattern:
    """A pattern with the sentence that explains it, in the wording of Kubernetes."""

    def __init__(self, sentence: str, pattern: str, *examples: str) -> None:
        shown = " or ".join(f"'{example}', " for example in examples)
        self.text = f"{sentence} (e.g. {shown}regex used for validation is '{pattern}')"
        self.fits = re.compile(pattern, re.ASCII).fullmatch


_LABEL_PATTERN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_KEY_PATTERN = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_KEY_SENTENCE = (
    "must consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)

_LABEL = _NamePattern(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character",
    _LABEL_PATTERN,
    "my-name",
    "123-abc",
)
_SUBDOMAIN = _NamePattern(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character",
    rf"{_LABEL_PATTERN}(\.{_LABEL_PATTERN})*",
    "example.com",
)
_C_IDENTIFIER = _NamePattern(
    "a valid C identifier must start with alphabetic character or '_', "
    "followed by a string of alphanumeric characters or '_'",
    "[A-Za-z_][A-Za-z0-9_]*",
    "my_name",
    "MY_NAME",
    "MyName",
)
_KEY_NAME = _NamePattern(_KEY_SENTENCE, _KEY_PATTERN, "MyName", "my.name", "123-abc")
_LABEL_VALUE = _NamePattern(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character",
    f"({_KEY_PATTERN})?",
    "MyValue",
    "my_value",
    "12345",
)


@_cache_rule
def check_dns_label(name: str) -> NameFaults:
    """Check a DNS label: names of devices and requests, namespaces."""
    faults = _check_length(name, MAX_LABEL)
    if not _LABEL.fits(name):
        text = "must not contain dots" if _SUBDOMAIN.fits(name) else _LABEL.text
        faults += (NameFault(text, name),)
    return faults


_LABELS = re.compile(rf"(?:{_LABEL_PATTERN}\n)*", re.ASCII)


def are_dns_labels(names: Sequence[str]) -> bool:
    """Whether all names are DNS labels: one test for many names."""
    lines = "".join([f"{name}\n" for name in names])
    return (
        lines.count("\n") == len(names)
        and _LABELS.fullmatch(lines) is not None
        and max(map(len, names), default=0) <= MAX_LABEL
    )


@_cache_rule
def check_dns_subdomain(name: str) -> NameFaults:
    """Check labels joined by dots: names of most objects, nodes, device classes."""
    return _check_length(name, MAX_SUBDOMAIN) + _check_pattern(name, _SUBDOMAIN)


def check_path_segment(name: str) -> NameFaults:
    """Check a name that may stand between two slashes of a URL, such as names of roles."""
    if name in (".", ".."):
        return (NameFault(f"may not be '{name}'", name),)
    return tuple(NameFault(f"may not contain '{sign}'", name) for sign in "/%" if sign in name)


@_cache_rule
def check_c_identifier(name: str) -> NameFaults:
    """Check letters, digits and `_`, not starting with a digit; any length."""
    return _check_pattern(name, _C_IDENTIFIER)


@_cache_rule
def check_qualified_name(name: str) -> NameFaults:
    """Check a label key: a name, or a DNS subdomain and a name joined by `/`; also taint keys."""
    prefix, slash, rest = name.partition("/")
    if "/" in rest:
        hint = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return (NameFault(f"a valid label key {_KEY_NAME.text} {hint}", name),)
    faults = _NONE
    if slash:
        faults = _report_in_part(
            "prefix", name, check_dns_subdomain(prefix) if prefix else _report_empty(prefix)
        )
    local = rest if slash else name
    length = _check_length(local, MAX_LABEL_NAME) if local else _report_empty(local)
    return faults + _report_in_part("name", name, length + _check_pattern(local, _KEY_NAME))


@_cache_rule
def check_label_value(value: str) -> NameFaults:
    """Check the value of a label; it may be empty."""
    return _check_length(value, MAX_LABEL_VALUE) + _check_pattern(value, _LABEL_VALUE)


@_cache_rule
def check_driver_name(name: str) -> NameFaults:
    """Check the name of a driver: a DNS subdomain of at most 63 bytes, in which upper case is accepted."""
    faults = check_dns_subdomain(name.lower()) if name.isascii() else _check_pattern(name, _SUBDOMAIN)
    return _check_too_long(name, MAX_DRIVER) + tuple(NameFault(fault.text, name) for fault in faults)


@_cache_rule
def check_pool_name(name: str) -> NameFaults:
    """Check the name of a pool: DNS subdomains joined by `/`, at most 253 bytes in all."""
    faults = list(_check_too_long(name, MAX_POOL))
    # No name within the limit has more parts; a megabyte of slashes must not make a million faults.
    for part in name.split("/", _MAX_POOL_PARTS)[:_MAX_POOL_PARTS]:
        faults += check_dns_subdomain(part)
    return tuple(faults)


@_cache_rule
def check_attribute_name(name: str) -> NameFaults:
    """Check the name of an attribute or a capacity: an id, or a domain and an id joined by `/`.

    The domain is mostly that of a driver, and has the same rules.
    """
    domain, slash, identifier = name.partition("/")
    if not slash:
        return _check_identifier(name)
    if "/" in identifier:
        return (NameFault("must be a name, or a domain and a name separated by a single slash", name),)
    faults = check_driver_name(domain) if domain else (NameFault("the domain must not be empty", ""),)
    return faults + (
        _check_identifier(identifier) if identifier else (NameFault("the name must not be empty", ""),)
    )


@_cache_rule
def check_fully_qualified_name(name: str) -> NameFaults:
    """Check the name of an attribute with its domain, as constraints need it."""
    faults = check_attribute_name(name)
    if "/" not in name:
        text = "a fully qualified name must be a domain and a name separated by a slash"
        faults += (NameFault(text, name),)
    return faults


def _check_identifier(identifier: str) -> NameFaults:
    return _check_too_long(identifier, MAX_ID) + check_c_identifier(identifier)


_UUID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
# Forms in which a UUID may be written when it is parsed; the normal form is none of them.
_UUID_SPELLINGS = {
    32: re.compile(r"[0-9A-Fa-f]{32}"),
    36: _UUID,
    38: re.compile(rf"\{{{_UUID.pattern}\}}"),
    45: re.compile(rf"(?i:urn:uuid:){_UUID.pattern}"),
}
_NORMAL_UUID_MESSAGE = (
    "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` "
    "with lowercase hexadecimal characters"
)


@_cache_rule
def check_uid(value: str) -> NameFaults:
    """Check a UUID in lower case with its four dashes: share ids, object uids."""
    dressed = _UUID_SPELLINGS.get(count_bytes(value))
    if dressed is None:
        return (NameFault(f"error validating uid: invalid UUID length: {count_bytes(value)}", value),)
    if not dressed.fullmatch(value):
        return (NameFault("error validating uid: invalid UUID format", value),)
    if dressed is not _UUID or value != value.lower():
        return (NameFault(_NORMAL_UUID_MESSAGE, value),)
    return _NONE


# --- parts of rules ---


def count_bytes(name: str) -> int:
    """Return the length in bytes, which is what the limits count."""
    return len(name) if name.isascii() else len(name.encode("utf-8", "surrogatepass"))


def _check_length(name: str, limit: int) -> NameFaults:
    """Check a length that Kubernetes reports as invalid."""
    return (NameFault(f"must be no more than {limit} bytes", name),) if count_bytes(name) > limit else _NONE


def _check_too_long(name: str, limit: int) -> NameFaults:
    """Check a length that Kubernetes reports as too long."""
    return (
        (NameFault(f"may not be more than {limit} bytes", name, limit),)
        if count_bytes(name) > limit
        else _NONE
    )


def _check_pattern(name: str, pattern: _NamePattern) -> NameFaults:
    return _NONE if pattern.fits(name) else (NameFault(pattern.text, name),)


def _report_empty(name: str) -> NameFaults:
    return (NameFault("must be non-empty", name),)


def _report_in_part(part: str, whole: str, faults: NameFaults) -> NameFaults:
    """Return the same faults, about a part of a name; the error quotes the whole name."""
    return tuple(NameFault(f"{part} part {fault.text}", whole) for fault in faults)
