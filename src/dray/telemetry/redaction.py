"""Redaction of text for logs: no control characters, no credentials.

Theory of operation: secrets reach a process in few places (the header `Authorization`, bodies, certificates),
and none of those is ever passed to a log. Logs have names, paths and messages, and clients may put anything
into those. So all logged text passes through here: characters that could forge a line or control a terminal
are escaped, and text that looks like a credential is replaced.
"""

from __future__ import annotations

import re
from functools import lru_cache

MAX_TEXT_LENGTH = 1024
"""Longer texts are cut."""

HIDDEN_TEXT = "<hidden>"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_CREDENTIAL = re.compile(
    r"eyJ[\w-]{5,}\.[\w-]*(?:\.[\w-]*)?"  # a JSON web token
    r"|(?i:\b(?:bearer|basic)\s+)[\w.~+/=-]{4,}"
    r"|(?i:\b(?:token|access_token|password|secret|client_secret|apikey|api_key)[=:])\s*[^\s&,;\"'`]+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*"
)
_CREDENTIAL_MARKERS = ("eyj", "bearer", "basic", "token", "passw", "secret", "apikey", "api_key", "-----")
"""Every credential contains one of these in lower case; searching for them is far cheaper."""


@lru_cache(maxsize=4096)
def redact(text: str) -> str:
    """Return text that is safe to log, on one line."""
    if len(text) > MAX_TEXT_LENGTH:
        text = f"{text[:MAX_TEXT_LENGTH]}… ({len(text)} characters)"
    if text.isascii() and text.isprintable():
        lower = text.lower()
        if not any(map(lower.__contains__, _CREDENTIAL_MARKERS)):
            return text
    return _CREDENTIAL.sub(HIDDEN_TEXT, _CONTROL.sub(_escape_character, text))


def _escape_character(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape", "surrogatepass").decode("ascii")
