"""Semantic versions 2.0.0: `1.2.3`, `1.2.3-rc.1`, `1.2.3+build.7`.

Theory of operation: parsing a version also builds its precedence as one tuple, and every comparison compares
two such tuples. A version without a prerelease ranks above the same one with a prerelease; numeric
identifiers rank below words, and fewer identifiers below more of them. Build metadata is ignored: `1.0.0+a`
and `1.0.0+b` are equal and have the same hash. The original text stays in `text`; callers that need identity
and not precedence compare that.

Numbers are those of a uint64 and a text has at most 255 characters; the specification leaves both limits to
implementations. ASCII only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NoReturn, TypeAlias

from dray.values.quoting import quote_text

MAX_TEXT = 255
MAX_NUMBER = 2**64 - 1

_Identifier: TypeAlias = tuple[int, int | str]
_Precedence: TypeAlias = tuple[int, int, int, bool, tuple[_Identifier, ...]]

_NUMBER = re.compile(r"[0-9]+")
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]+")
_PARTS = ("major", "minor", "patch")
_set = object.__setattr__


class VersionError(ValueError):
    """A text that is no semantic version; `reason` explains why."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"{quote_text(text)}: {reason}")
        self.reason = reason


class Version:
    """A semantic version. Equal, ordered and hashed by precedence; `text` is the original text."""

    __slots__ = ("build", "major", "minor", "patch", "precedence", "prerelease", "text")

    text: str
    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...]
    build: tuple[str, ...]
    precedence: _Precedence

    def __init__(self, text: str) -> None:
        core, prerelease, build = _split_version(text)
        numbers = _parse_core(text, core)
        identifiers = () if prerelease is None else _parse_identifiers(text, "prerelease", prerelease)
        rank = tuple(_rank_identifier(text, identifier) for identifier in identifiers)
        _set(self, "text", text)
        for name, number in zip(_PARTS, numbers, strict=True):
            _set(self, name, number)
        _set(self, "prerelease", identifiers)
        _set(self, "build", () if build is None else _parse_identifiers(text, "build metadata", build))
        _set(self, "precedence", (*numbers, not identifiers, rank))

    @staticmethod
    @lru_cache(maxsize=4096)
    def parse(text: str, /) -> Version:
        """Parse a text; raises `VersionError` with the reason. Versions repeat, so results are cached."""
        return Version(text)

    def __eq__(self, other: object) -> bool:
        return self.precedence == other.precedence if isinstance(other, Version) else NotImplemented

    def __lt__(self, other: Version) -> bool:
        if not isinstance(other, Version):
            return NotImplemented
        return self.precedence < other.precedence

    def __le__(self, other: Version) -> bool:
        if not isinstance(other, Version):
            return NotImplemented
        return self.precedence <= other.precedence

    def __gt__(self, other: Version) -> bool:
        if not isinstance(other, Version):
            return NotImplemented
        return self.precedence > other.precedence

    def __ge__(self, other: Version) -> bool:
        if not isinstance(other, Version):
            return NotImplemented
        return self.precedence >= other.precedence

    def __hash__(self) -> int:
        return hash(self.precedence)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Version({self.text!r})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a version cannot be changed: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a version cannot be changed: {name}")

    def __reduce__(self) -> tuple[type[Version], tuple[str]]:
        return Version, (self.text,)


_PLAIN_NUMBER = "(?:0|[1-9][0-9]{0,18})"
_PLAIN = re.compile(rf"(?:{_PLAIN_NUMBER}\.{_PLAIN_NUMBER}\.{_PLAIN_NUMBER}\n)*")


def are_plain_versions(texts: Sequence[str]) -> bool:
    """Whether all texts are versions of three numbers only: one test for many of them.

    A negative result means little: a version with a prerelease is valid, too.
    """
    lines = "".join([f"{text}\n" for text in texts])
    return lines.count("\n") == len(texts) and _PLAIN.fullmatch(lines) is not None


def _split_version(text: str) -> tuple[str, str | None, str | None]:
    """Split into core, prerelease and build metadata; the latter two are `None` when their separator is
    absent.
    """
    if len(text) > MAX_TEXT:
        raise VersionError(text, f"{len(text)} characters; a version has at most {MAX_TEXT}")
    if not text.isascii():
        raise VersionError(text, "contains a character outside ASCII")
    head, plus, build = text.partition("+")
    core, minus, prerelease = head.partition("-")
    return core, prerelease if minus else None, build if plus else None


def _parse_core(text: str, core: str) -> tuple[int, int, int]:
    if core[:1] in {"v", "V"}:
        raise VersionError(text, f"starts with `{core[0]}`; a version is written without it")
    parts = core.split(".")
    if len(parts) != 3:
        raise VersionError(text, "expected three numbers, `MAJOR.MINOR.PATCH`, such as `1.2.3`")
    major, minor, patch = (_parse_number(text, *part) for part in zip(_PARTS, parts, strict=True))
    return major, minor, patch


def _parse_number(text: str, name: str, digits: str) -> int:
    if not _NUMBER.fullmatch(digits):
        raise VersionError(text, f"{name} is {quote_text(digits)}; expected a number of the digits 0 to 9")
    if digits[0] == "0" and digits != "0":
        raise VersionError(text, f"{name} is {quote_text(digits)}; leading zeros are not allowed")
    number = int(digits)
    if number > MAX_NUMBER:
        raise VersionError(text, f"{name} is {quote_text(digits)}; the largest number is {MAX_NUMBER}")
    return number


def _parse_identifiers(text: str, name: str, joined: str) -> tuple[str, ...]:
    identifiers = tuple(joined.split("."))
    for identifier in identifiers:
        if not identifier:
            raise VersionError(text, f"empty identifier in the {name}; expected letters, digits or `-`")
        if not _IDENTIFIER.fullmatch(identifier):
            raise VersionError(
                text, f"{name} identifier {quote_text(identifier)}: only letters, digits and `-` are allowed"
            )
    return identifiers


def _rank_identifier(text: str, identifier: str) -> _Identifier:
    if _NUMBER.fullmatch(identifier):
        return 0, _parse_number(text, "prerelease identifier", identifier)
    return 1, identifier
