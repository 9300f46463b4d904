"""Name rules: what may be the name of a device, an attribute, a pool, a label.

Each rule takes a name and returns its faults, none for a good name. The texts are those Kubernetes clients
know. A fault also carries the part of the name it is about, which is what an error quotes, and `too_long`,
the limit in bytes, when Kubernetes reports it as too long rather than as invalid. Whether an absent name is
allowed is for the caller to judge before asking a rule: an empty text is just one that breaks most of them.

Names repeat thousands of times in a cluster, so the rules remember their answers, but only for names of sane
length: nobody fills the memory with long bad names.

One rule is stricter than in Kubernetes: an attribute name with two slashes is refused (`x.io/a/b`), where
Kubernetes looks at neither part.
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
    """One thing wrong with a name: in words, the part it is about, and the limit when that is too long."""

    text: str
    value: str
    too_long: int | None = None

    def __str__(self) -> str:
        return self.text


Faults: TypeAlias = tuple[NameFault, ...]
Rule: TypeAlias = Callable[[str], Faults]

_REMEMBERED_LENGTH = 320
_NONE: Faults = ()


def _remembered(rule: Rule) -> Rule:
    cached = lru_cache(maxsize=8192)(rule)

    @wraps(rule)
    def answer(name: str) -> Faults:
        return cached(name) if len(name) <= _REMEMBERED_LENGTH else rule(name)

    return answer


class _Shape:
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

_LABEL = _Shape(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character",
    _LABEL_PATTERN,
    "my-name",
    "123-abc",
)
_SUBDOMAIN = _Shape(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character",
    rf"{_LABEL_PATTERN}(\.{_LABEL_PATTERN})*",
    "example.com",
)
_C_IDENTIFIER = _Shape(
    "a valid C identifier must start with alphabetic character or '_', "
    "followed by a string of alphanumeric characters or '_'",
    "[A-Za-z_][A-Za-z0-9_]*",
    "my_name",
    "MY_NAME",
    "MyName",
)
_KEY_NAME = _Shape(_KEY_SENTENCE, _KEY_PATTERN, "MyName", "my.name", "123-abc")
_LABEL_VALUE = _Shape(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character",
    f"({_KEY_PATTERN})?",
    "MyValue",
    "my_value",
    "12345",
)


@_remembered
def dns_label(name: str) -> Faults:
    """One piece of a domain name: device and request names, namespaces."""
    faults = _over(name, MAX_LABEL)
    if not _LABEL.fits(name):
        text = "must not contain dots" if _SUBDOMAIN.fits(name) else _LABEL.text
        faults += (NameFault(text, name),)
    return faults


_LABELS = re.compile(rf"(?:{_LABEL_PATTERN}\n)*", re.ASCII)


def are_dns_labels(names: Sequence[str]) -> bool:
    """Whether all names are DNS labels: one question for many of them."""
    lines = "".join([f"{name}\n" for name in names])
    return (
        lines.count("\n") == len(names)
        and _LABELS.fullmatch(lines) is not None
        and max(map(len, names), default=0) <= MAX_LABEL
    )


@_remembered
def dns_subdomain(name: str) -> Faults:
    """Labels joined by dots: names of most objects, nodes, device classes."""
    return _over(name, MAX_SUBDOMAIN) + _unfit(name, _SUBDOMAIN)


def path_segment(name: str) -> Faults:
    """A name that can stand between two slashes of a URL; roles are named so freely."""
    if name in (".", ".."):
        return (NameFault(f"may not be '{name}'", name),)
    return tuple(NameFault(f"may not contain '{sign}'", name) for sign in "/%" if sign in name)


@_remembered
def c_identifier(name: str) -> Faults:
    """Letters, digits and `_`, not starting with a digit; any length."""
    return _unfit(name, _C_IDENTIFIER)


@_remembered
def qualified_name(name: str) -> Faults:
    """A label key: a name, or a DNS subdomain and a name joined by `/`; also taint keys and conditions."""
    prefix, slash, rest = name.partition("/")
    if "/" in rest:
        hint = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return (NameFault(f"a valid label key {_KEY_NAME.text} {hint}", name),)
    faults = _NONE
    if slash:
        faults = _in_part("prefix", name, dns_subdomain(prefix) if prefix else _empty(prefix))
    local = rest if slash else name
    length = _over(local, MAX_LABEL_NAME) if local else _empty(local)
    return faults + _in_part("name", name, length + _unfit(local, _KEY_NAME))


@_remembered
def label_value(value: str) -> Faults:
    """The value of a label; may be empty."""
    return _over(value, MAX_LABEL_VALUE) + _unfit(value, _LABEL_VALUE)


@_remembered
def driver_name(name: str) -> Faults:
    """The name of a driver: a DNS subdomain of at most 63 bytes, in which upper case is let through."""
    faults = dns_subdomain(name.lower()) if name.isascii() else _unfit(name, _SUBDOMAIN)
    return _too_long(name, MAX_DRIVER) + tuple(NameFault(fault.text, name) for fault in faults)


@_remembered
def pool_name(name: str) -> Faults:
    """The name of a pool: DNS subdomains joined by `/`, at most 253 bytes in all."""
    faults = list(_too_long(name, MAX_POOL))
    # No name within the limit has more parts; a megabyte of slashes must not make a million faults.
    for part in name.split("/", _MAX_POOL_PARTS)[:_MAX_POOL_PARTS]:
        faults += dns_subdomain(part)
    return tuple(faults)


@_remembered
def attribute_name(name: str) -> Faults:
    """The name of an attribute or a capacity: an id, or a domain and an id joined by `/`.

    The domain is mostly that of a driver, and has the rules of one.
    """
    domain, slash, identifier = name.partition("/")
    if not slash:
        return _id_faults(name)
    if "/" in identifier:
        return (NameFault("must be a name, or a domain and a name separated by a single slash", name),)
    faults = driver_name(domain) if domain else (NameFault("the domain must not be empty", ""),)
    return faults + (_id_faults(identifier) if identifier else (NameFault("the name must not be empty", ""),))


@_remembered
def fully_qualified_name(name: str) -> Faults:
    """The name of an attribute with its domain, as constraints need it."""
    faults = attribute_name(name)
    if "/" not in name:
        text = "a fully qualified name must be a domain and a name separated by a slash"
        faults += (NameFault(text, name),)
    return faults


def _id_faults(identifier: str) -> Faults:
    return _too_long(identifier, MAX_ID) + c_identifier(identifier)


_UUID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
# What a UUID may be dressed in when it is read; the normal form has none of it.
_DRESSED_UUIDS = {
    32: re.compile(r"[0-9A-Fa-f]{32}"),
    36: _UUID,
    38: re.compile(rf"\{{{_UUID.pattern}\}}"),
    45: re.compile(rf"(?i:urn:uuid:){_UUID.pattern}"),
}
_NORMAL_UUID = (
    "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` "
    "with lowercase hexadecimal characters"
)


@_remembered
def uid(value: str) -> Faults:
    """A UUID in lower case with its four dashes: share ids, object uids."""
    dressed = _DRESSED_UUIDS.get(_size(value))
    if dressed is None:
        return (NameFault(f"error validating uid: invalid UUID length: {_size(value)}", value),)
    if not dressed.fullmatch(value):
        return (NameFault("error validating uid: invalid UUID format", value),)
    if dressed is not _UUID or value != value.lower():
        return (NameFault(_NORMAL_UUID, value),)
    return _NONE


# --- pieces of rules ---


def _size(name: str) -> int:
    """The length in bytes, which is what the limits count."""
    return len(name) if name.isascii() else len(name.encode("utf-8", "surrogatepass"))


def _over(name: str, limit: int) -> Faults:
    """A length that Kubernetes reports among the invalid."""
    return (NameFault(f"must be no more than {limit} bytes", name),) if _size(name) > limit else _NONE


def _too_long(name: str, limit: int) -> Faults:
    """A length that Kubernetes reports as too long."""
    return (NameFault(f"may not be more than {limit} bytes", name, limit),) if _size(name) > limit else _NONE


def _unfit(name: str, shape: _Shape) -> Faults:
    return _NONE if shape.fits(name) else (NameFault(shape.text, name),)


def _empty(name: str) -> Faults:
    return (NameFault("must be non-empty", name),)


def _in_part(part: str, whole: str, faults: Faults) -> Faults:
    """The same faults, told of a part of a name; the error quotes the whole."""
    return tuple(NameFault(f"{part} part {fault.text}", whole) for fault in faults)
