"""Error lines of Kubernetes' programs, reduced to patterns that two runs have in common.

An error with one of the causes that every cluster has is named by source file, message and that cause. Any
other keeps its text, with marks for names, numbers, addresses, uids and times.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

_ERROR = re.compile(r"^[EF]\d{4} \S+ +\d+ (?P<file>[\w.-]+):\d+\] (?P<text>.*)$")
_PANIC = re.compile(r"^(panic:|fatal error:|.*Observed a panic)")
_MESSAGE = re.compile(r'"(?P<message>[^"]*)"')
_SAID = re.compile(r'err="(?P<error>(?:[^"\\]|\\.)*)"')
UNREACHABLE = "the server is not reachable"
_CAUSES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        UNREACHABLE,
        re.compile(
            r"connection re(fused|set)|broken pipe|\bEOF\b|GOAWAY|client connection lost|handshake timeout|"
            r"reading response body|context deadline exceeded|Client\.Timeout|ServiceUnavailable|"
            r"apiserver not ready|the server was unable to return a response|would exceed context deadline|"
            r"(?i:leader ?election lost)"
        ),
    ),
    (
        "an object changed meanwhile",
        re.compile(r"the object has been modified|elsewhere in the meantime|failed: ResourceVersion"),
    ),
    ("a cache is older than a write", re.compile(r"is not as new as written|cache is out of date")),
    ("the namespace is being deleted", re.compile(r"because it is being terminated|remain in namespace")),
    ("a quota is used up", re.compile(r"exceeded quota")),
    (
        "an object is gone",
        re.compile(
            r"\bnot found|Not Found|Precondition failed: UID|got deleted in the meantime|from lister|"
            r"could not find ResourceClaim"
        ),
    ),
    ("an object is being deleted", re.compile(r"is being deleted, cannot|`deletionTimestamp` are set")),
    ("a claim cannot be answered", re.compile(r"filter plugin: claim .*(asks for all devices|CEL runtime)")),
    ("the program is ending", re.compile(r"context canceled|broadcaster already stopped")),
    ("an object is there already", re.compile(r"already exists")),
    ("the server is starting: no roles yet", re.compile(r"is forbidden: User .* cannot")),
)
"""Causes of errors that every cluster has; an error with one of them is named by it, not by its text."""
_MARKS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*( [+-]\d{4} \w+)?( m=\S+)?"), "TIME"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\b[A-Za-z]+-\d+(-[a-z0-9]+)*\b"), "NAME"),
    (re.compile(r"(resourceVersion=|resourceVersion: |timeout=)\S+"), r"\1N"),
    (re.compile(r"\b\d+(\.\d+)?(ns|µs|ms|s|m|h)?\b"), "N"),
)
LONGEST = 400
"""Characters of a pattern; what follows repeats objects as Go prints them."""


def read_patterns(log: Path, begin: int = 0) -> Counter[str]:
    """The patterns of a log's errors and panics, from a position on."""
    if not log.exists():
        return Counter()
    with log.open(encoding="utf-8", errors="replace") as lines:
        lines.seek(begin)
        return find_patterns(lines)


def find_patterns(lines: Iterable[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in lines:
        if matched := _ERROR.match(line):
            found[build_pattern(matched["file"], matched["text"])] += 1
        elif _PANIC.match(line):
            found[reduce_text(line.strip())] += 1
    return found


def build_pattern(file: str, text: str) -> str:
    """Name an error by its cause, with where it was written unless every program writes it everywhere."""
    said = _SAID.search(text)
    error = said["error"] if said else text
    cause = next((name for name, pattern in _CAUSES if pattern.search(error)), None)
    if cause is None:
        return f"{file} {reduce_text(text)}"
    if cause == UNREACHABLE:
        return cause
    message = _MESSAGE.match(text)
    return f"{file} {message['message'] if message else ''}: {cause}"


def reduce_text(text: str) -> str:
    for pattern, mark in _MARKS:
        text = pattern.sub(mark, text)
    return text[:LONGEST]
