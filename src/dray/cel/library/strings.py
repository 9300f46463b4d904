"""Functions on strings. Positions and lengths are counted in code points."""

from __future__ import annotations

from typing import Final

from dray.cel import types as t
from dray.cel.declarations import declare_function, declare_member_overload, declare_overload
from dray.cel.faults import CelError, make_overload_error
from dray.cel.library.string_format import format_template
from dray.cel.regex import compile_pattern
from dray.cel.values import MAX_TEXT_LENGTH, Value, check_size

_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
# What Go takes for blank, which is not quite what Python does.
_BLANK: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_QUOTED: Final = {
    ord(char): f"\\{letter}" for char, letter in zip('\a\b\f\n\r\t\v\\"', 'abfnrtv\\"', strict=True)
}


def _get_char(text: str, place: int) -> str:
    if not 0 <= place <= len(text):
        raise CelError(f"index out of range: {place}")
    return text[place : place + 1]


def _find_index(text: str, part: str, start: int = 0) -> int:
    if not part:
        return start
    if start < 0:
        raise CelError(f"index out of range: {start}")
    return text.find(part, start)


def _find_last_index(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part)
    if not part:
        return start
    if start < 0:
        raise CelError(f"index out of range: {start}")
    return text.rfind(part, 0, start + len(part)) if start < len(text) else -1


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    count = text.count(old)
    count = count if limit < 0 else min(count, limit)
    check_size(len(text) + count * max(len(new) - len(old), 0), MAX_TEXT_LENGTH)
    return text.replace(old, new, limit)


def _split(text: str, separator: str, limit: int = -1) -> tuple[str, ...]:
    if limit == 0:
        return ()
    if not separator:
        head = list(text) if limit < 0 else [*text[: limit - 1], text[limit - 1 :]]
        return tuple(head if text else [])
    return tuple(text.split(separator, limit - 1 if limit > 0 else -1))


def _get_substring(text: str, start: int, end: int | None = None) -> str:
    if not 0 <= start <= len(text):
        raise CelError(f"index out of range: {start}")
    if end is None:
        return text[start:]
    if not 0 <= end <= len(text):
        raise CelError(f"index out of range: {end}")
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


def _join(parts: tuple[Value, ...], separator: str = "") -> str:
    if any(type(part) is not str for part in parts):
        raise make_overload_error()
    check_size(sum(map(len, parts)) + len(separator) * max(len(parts) - 1, 0), MAX_TEXT_LENGTH)
    return separator.join(parts)


def _find_all(text: str, wanted: str, limit: int = -1) -> tuple[str, ...]:
    return compile_pattern(wanted).find_all(text, limit)


def _quote(text: str) -> str:
    return f'"{text.translate(_QUOTED)}"'


_TEXT: Final = (t.STRING,)
_TWO: Final = (t.STRING, t.STRING)
_TWO_INT: Final = (t.STRING, t.STRING, t.INT)
_TEXTS: Final = t.make_list_type(t.STRING)

LIBRARY: Final = (
    declare_function(
        "contains", declare_member_overload("contains_string", _TWO, t.BOOL, lambda text, part: part in text)
    ),
    declare_function(
        "startsWith", declare_member_overload("starts_with_string", _TWO, t.BOOL, str.startswith)
    ),
    declare_function("endsWith", declare_member_overload("ends_with_string", _TWO, t.BOOL, str.endswith)),
    declare_function(
        "matches",
        declare_overload("matches", _TWO, t.BOOL, lambda text, wanted: compile_pattern(wanted).matches(text)),
        declare_member_overload(
            "matches_string", _TWO, t.BOOL, lambda text, wanted: compile_pattern(wanted).matches(text)
        ),
    ),
    declare_function(
        "find",
        declare_member_overload(
            "string_find_string",
            _TWO,
            t.STRING,
            lambda text, wanted: compile_pattern(wanted).find_first(text),
        ),
    ),
    declare_function(
        "findAll",
        declare_member_overload("string_find_all_string", _TWO, _TEXTS, _find_all),
        declare_member_overload("string_find_all_string_int", _TWO_INT, _TEXTS, _find_all),
    ),
    declare_function(
        "charAt", declare_member_overload("string_char_at_int", (t.STRING, t.INT), t.STRING, _get_char)
    ),
    declare_function(
        "indexOf",
        declare_member_overload("string_index_of_string", _TWO, t.INT, _find_index),
        declare_member_overload("string_index_of_string_int", _TWO_INT, t.INT, _find_index),
    ),
    declare_function(
        "lastIndexOf",
        declare_member_overload("string_last_index_of_string", _TWO, t.INT, _find_last_index),
        declare_member_overload("string_last_index_of_string_int", _TWO_INT, t.INT, _find_last_index),
    ),
    declare_function(
        "lowerAscii",
        declare_member_overload("string_lower_ascii", _TEXT, t.STRING, lambda text: text.translate(_LOWER)),
    ),
    declare_function(
        "upperAscii",
        declare_member_overload("string_upper_ascii", _TEXT, t.STRING, lambda text: text.translate(_UPPER)),
    ),
    declare_function(
        "replace",
        declare_member_overload("string_replace_string_string", (*_TWO, t.STRING), t.STRING, _replace),
        declare_member_overload(
            "string_replace_string_string_int", (*_TWO, t.STRING, t.INT), t.STRING, _replace
        ),
    ),
    declare_function(
        "split",
        declare_member_overload("string_split_string", _TWO, _TEXTS, _split),
        declare_member_overload("string_split_string_int", _TWO_INT, _TEXTS, _split),
    ),
    declare_function(
        "substring",
        declare_member_overload("string_substring_int", (t.STRING, t.INT), t.STRING, _get_substring),
        declare_member_overload(
            "string_substring_int_int", (t.STRING, t.INT, t.INT), t.STRING, _get_substring
        ),
    ),
    declare_function(
        "trim", declare_member_overload("string_trim", _TEXT, t.STRING, lambda text: text.strip(_BLANK))
    ),
    declare_function(
        "join",
        declare_member_overload("list_join", (_TEXTS,), t.STRING, _join),
        declare_member_overload("list_join_string", (_TEXTS, t.STRING), t.STRING, _join),
    ),
    declare_function(
        "format",
        declare_member_overload(
            "string_format", (t.STRING, t.make_list_type(t.DYN)), t.STRING, format_template
        ),
    ),
    declare_function("strings.quote", declare_overload("strings_quote", _TEXT, t.STRING, _quote)),
)
