"""Regular expressions with the meaning of RE2: linear time, whatever the pattern.

Theory of operation: Python's own `re` backtracks, and a selector could hang its evaluation; so patterns
go to RE2, through the distribution `pyre2`. It is loaded when the first pattern is compiled: expressions
without patterns need nothing. `pyre2` reads patterns with Python's habits; `_rewrite_for_pyre2` writes a
pattern so that they make no difference, and refuses what Go refuses.

Matching is linear, compiling is not: `\\pL{1000}` takes a quarter of a second before RE2 gives up on it.
`estimate_program_size` says beforehand how large a compiled pattern would be, and what is too large is
refused.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from dray.cel.faults import CelError

ENGINE_MISSING_MESSAGE: Final = "regular expressions need the distribution `pyre2`, which is not installed"
_ESCAPES = re.compile(
    r"""
      \\x\{(?P<braced>[0-9A-Fa-f]{1,8})\}
    | \\(?P<octal>0[0-7]{0,2}|[1-7][0-7]{1,2})
    | (?P<refused>\\[ZC1-9])
    | (?P<quoted>\\Q)
    | (?P<other>\\.)
    | (?P<named>\(\?<(?=[A-Za-z_]))
    | (?P<plain>[^\\(]+|\()
    """,
    re.VERBOSE | re.DOTALL,
)
_MAX_CODE: Final = 0x10FFFF

_PIECES = re.compile(
    r"""
      (?P<group>\((?:\?(?:P?<[^>]*>|[a-zA-Z-]*:)?)?)
    | (?P<close>\))
    | (?P<either>\|)
    | \{(?P<least>[0-9]{1,9})(?:(?P<range>,)(?P<most>[0-9]{0,9}))?\}
    | (?P<again>[*+?])
    | (?P<class>\[\^?\]?(?:\[:[^]]*:\]|\\.|[^\]\\])*\]?)
    | (?P<property>\\[pP](?:\{[^}]*\}?|.)?)
    | (?P<any>\.)
    | \\?.
    """,
    re.VERBOSE | re.DOTALL,
)
_PROPERTY_SIZE: Final = 300
_CLASS_SIZE: Final = 5
_ANY_SIZE: Final = 3
MAX_PROGRAM_SIZE: Final = 5000
"""`[a-z]{1000}` is allowed; a compiled pattern of this size takes a few milliseconds to make."""


class EngineMissingError(CelError):
    """The distribution that matches patterns is not installed."""


class RegexPattern:
    """A compiled pattern."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def matches(self, text: str) -> bool:
        """Whether the pattern matches somewhere in the text."""
        return bool(self._compiled.contains(_replace_surrogates(text)))

    def find_first(self, text: str) -> str:
        """The first match, or the empty text."""
        match = self._compiled.search(_replace_surrogates(text))
        return str(match.group(0)) if match else ""

    def find_all(self, text: str, limit: int) -> tuple[str, ...]:
        """The matches one after the other, not more than `limit` unless that is negative.

        As in Go, an empty match right behind another match does not count.
        """
        found: list[str] = []
        end = -1
        for match in self._compiled.finditer(_replace_surrogates(text)):
            if len(found) == limit:
                break
            if match.end() > match.start() or match.start() != end:
                found.append(str(match.group(0)))
            end = match.end()
        return tuple(found)


@lru_cache(maxsize=512)
def compile_pattern(text: str) -> RegexPattern:
    """Compile a pattern; raises `CelError` when it is invalid."""
    try:
        re2: Any = import_module("re2")
    except ImportError:
        raise EngineMissingError(ENGINE_MISSING_MESSAGE) from None
    # By default, pyre2 falls back to `re` silently.
    re2.set_fallback_notification(re2.FALLBACK_EXCEPTION)
    if estimate_program_size(text) > MAX_PROGRAM_SIZE:
        raise CelError("error parsing regexp: expression too large")
    spelled = _rewrite_for_pyre2(text)
    try:
        return RegexPattern(re2.compile(spelled, re2.ASCII))
    except (re2.error, re.error, ValueError, OverflowError) as bad:
        raise CelError(f"error parsing regexp: {bad}") from None


def estimate_program_size(text: str) -> int:
    """Roughly how many instructions a pattern compiles to; repetition multiplies."""
    levels = [[0, 0]]
    for piece in _PIECES.finditer(text):
        level = levels[-1]
        if piece["group"]:
            levels.append([0, 0])
        elif piece["close"] and len(levels) > 1:
            levels.pop()
            inside = level[0] + level[1] + 1
            levels[-1] = [min(sum(levels[-1]), MAX_PROGRAM_SIZE + 1), inside]
        elif piece["least"]:
            times = int(piece["most"] or piece["least"]) + (1 if piece["range"] and not piece["most"] else 0)
            level[1] = min(level[1] * times, MAX_PROGRAM_SIZE + 1)
        elif not piece["again"]:
            levels[-1] = [min(level[0] + level[1], MAX_PROGRAM_SIZE + 1), _estimate_piece_size(piece)]
    return min(sum(map(sum, levels)), MAX_PROGRAM_SIZE + 1)


def _estimate_piece_size(piece: re.Match[str]) -> int:
    if piece["property"]:
        return _PROPERTY_SIZE
    if piece["class"]:
        inside = piece["class"]
        return _CLASS_SIZE + _PROPERTY_SIZE * (inside.count("\\p") + inside.count("\\P"))
    if piece["any"]:
        return _ANY_SIZE
    return 0 if piece["either"] else 1


def _replace_surrogates(text: str) -> str:
    """Text that can be written as UTF-8: half a surrogate pair cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _rewrite_for_pyre2(text: str) -> str:
    result: list[str] = []
    place = 0
    while place < len(text):
        match = _ESCAPES.match(text, place)
        if match is None:
            raise CelError("error parsing regexp: trailing backslash at end of expression")
        place = match.end()
        if match["refused"]:
            raise CelError(f"error parsing regexp: invalid escape sequence: `{match['refused']}`")
        if match["quoted"]:
            end = text.find("\\E", place)
            stop = len(text) if end < 0 else end
            result.append(re.escape(text[place:stop]))
            place = stop if end < 0 else end + 2
        elif match["braced"] or match["octal"]:
            result.append(
                _escape_code_point(int(match["braced"], 16) if match["braced"] else int(match["octal"], 8))
            )
        else:
            result.append("(?P<" if match["named"] else match[0])
    return _replace_surrogates("".join(result))


def _escape_code_point(code: int) -> str:
    if code > _MAX_CODE or 0xD800 <= code <= 0xDFFF:
        raise CelError("error parsing regexp: invalid escape sequence: no such code point")
    char = chr(code)
    return f"\\x{code:02x}" if code < 0x80 and not char.isalnum() else char
