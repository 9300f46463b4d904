"""Named formats: `format.dns1123Label().validate(name)` gives nothing, or a list of what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Final

from dray.cel import types as t
from dray.cel.declarations import declare_function, declare_member_overload, declare_overload
from dray.cel.equality import STRICT_TYPES
from dray.cel.faults import CelError
from dray.cel.library.urls import parse_url
from dray.cel.times import parse_timestamp
from dray.cel.values import NONE, TYPE_NAMES_BY_CLASS, OptionalValue
from dray.values import names

_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_LABEL_1035_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_UUID = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.ASCII | re.IGNORECASE
)
_BASE64 = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})", re.ASCII
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)

# The length of the patterns Kubernetes uses, which is what the cost of a validation depends on.
_URI_PATTERN: Final = 2048
_UUID_PATTERN: Final = 62
_BYTE_PATTERN: Final = 95
_DATETIME_PATTERN: Final = 88

FormatCheck = Callable[[str], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A format: its name, what checks it, and how long its pattern is."""

    name: str
    check: FormatCheck
    pattern_size: int


TYPE_NAMES_BY_CLASS[NamedFormat] = t.FORMAT.name
STRICT_TYPES[NamedFormat] = "format"


def _check_name_rule(rule: names.NameRule) -> FormatCheck:
    return lambda text: tuple(str(fault) for fault in rule(text))


def _allow_trailing_dash(check: FormatCheck) -> FormatCheck:
    """A name that something will be appended to may end with a dash."""
    return lambda text: check(f"{text[:-1]}a" if len(text) > 1 and text.endswith("-") else text)


def _check_label_1035(text: str) -> tuple[str, ...]:
    too_long = (f"must be no more than {names.MAX_LABEL} bytes",) if len(text) > names.MAX_LABEL else ()
    return too_long + (() if _LABEL_1035.fullmatch(text) else (_LABEL_1035_TEXT,))


def _check_pattern(pattern: re.Pattern[str], message: str) -> FormatCheck:
    return lambda text: () if pattern.fullmatch(text) else (message,)


def _check_uri(text: str) -> tuple[str, ...]:
    try:
        parse_url(text)
    except ValueError as bad:
        return (str(bad),)
    return ()


def _check_date(text: str) -> tuple[str, ...]:
    try:
        if _DATE.fullmatch(text):
            date.fromisoformat(text)
            return ()
    except ValueError:
        pass
    return ("invalid date",)


def _check_datetime(text: str) -> tuple[str, ...]:
    try:
        parse_timestamp(text)
    except CelError:
        return ("invalid datetime",)
    return ()


_LABEL: Final = _check_name_rule(names.check_dns_label)
_SUBDOMAIN: Final = _check_name_rule(names.check_dns_subdomain)

FORMATS: Final[Mapping[str, NamedFormat]] = MappingProxyType(
    {
        "dns1123Label": NamedFormat("DNS1123Label", _LABEL, 30),
        "dns1123Subdomain": NamedFormat("DNS1123Subdomain", _SUBDOMAIN, 60),
        "dns1035Label": NamedFormat("DNS1035Label", _check_label_1035, 30),
        "qualifiedName": NamedFormat("QualifiedName", _check_name_rule(names.check_qualified_name), 60),
        "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _allow_trailing_dash(_LABEL), 30),
        "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _allow_trailing_dash(_SUBDOMAIN), 60),
        "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _allow_trailing_dash(_check_label_1035), 30),
        "labelValue": NamedFormat("LabelValue", _check_name_rule(names.check_label_value), 40),
        "uri": NamedFormat("URI", _check_uri, _URI_PATTERN),
        "uuid": NamedFormat("uuid", _check_pattern(_UUID, "does not match the UUID format"), _UUID_PATTERN),
        "byte": NamedFormat("byte", _check_pattern(_BASE64, "invalid base64"), _BYTE_PATTERN),
        "date": NamedFormat("date", _check_date, _DATETIME_PATTERN),
        "datetime": NamedFormat("datetime", _check_datetime, _DATETIME_PATTERN),
    }
)


def _validate(named: NamedFormat, text: str) -> OptionalValue:
    faults = named.check(text)
    return OptionalValue(faults) if faults else NONE


def _find_format(name: str) -> OptionalValue:
    named = FORMATS.get(name)
    return NONE if named is None else OptionalValue(named)


LIBRARY: Final = (
    *(
        declare_function(
            f"format.{name}", declare_overload(f"format.{name}", (), t.FORMAT, lambda named=named: named)
        )
        for name, named in FORMATS.items()
    ),
    declare_function(
        "format.named",
        declare_overload("format-named", (t.STRING,), t.make_optional_type(t.FORMAT), _find_format),
    ),
    declare_function(
        "validate",
        declare_member_overload(
            "format-validate",
            (t.FORMAT, t.STRING),
            t.make_optional_type(t.make_list_type(t.STRING)),
            _validate,
        ),
    ),
)
