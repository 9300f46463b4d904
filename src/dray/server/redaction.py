"""What may be written down of a request: text without control characters, and nothing that opens a door.

Theory of operation: secrets reach a server in few places (the header `Authorization`, bodies, certificates),
and none of those is ever handed to a log. What is logged are names, paths and messages, and into those a
client may put anything. So whatever goes out passes here: characters that could forge a line or drive a
terminal are escaped, and text that looks like a credential is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from dray.server.call import Call

LONGEST = 1024
"""More characters of one text help nobody."""

HIDDEN = "<hidden>"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_CREDENTIAL = re.compile(
    r"eyJ[\w-]{5,}\.[\w-]*(?:\.[\w-]*)?"  # a JSON web token
    r"|(?i:\b(?:bearer|basic)\s+)[\w.~+/=-]{4,}"
    r"|(?i:\b(?:token|access_token|password|secret|client_secret|apikey|api_key)[=:])\s*[^\s&,;\"'`]+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*"
)
_SUSPECTS = ("eyj", "bearer", "basic", "token", "passw", "secret", "apikey", "api_key", "-----")
"""Nothing of the above is in a text without one of these, in lower case; looking for them is far cheaper."""

SHOWN_PARAMETERS = frozenset(
    {
        "allowWatchBookmarks",
        "dryRun",
        "fieldManager",
        "fieldSelector",
        "fieldValidation",
        "force",
        "gracePeriodSeconds",
        "labelSelector",
        "limit",
        "orphanDependents",
        "propagationPolicy",
        "resourceVersion",
        "resourceVersionMatch",
        "sendInitialEvents",
        "timeoutSeconds",
        "watch",
    }
)
"""The query parameters whose values are written down; of others only the names are."""

SECRET_RESOURCES = frozenset({("", "secrets"), ("authentication.k8s.io", "tokenreviews")})


@lru_cache(maxsize=4096)
def plain(text: str) -> str:
    """Text that is safe to write down, on one line."""
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}… ({len(text)} characters)"
    if text.isascii() and text.isprintable():
        lower = text.lower()
        if not any(map(lower.__contains__, _SUSPECTS)):
            return text
    return _CREDENTIAL.sub(HIDDEN, _CONTROL.sub(_escaped, text))


def _escaped(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape", "surrogatepass").decode("ascii")


def shown_query(query: Mapping[str, str]) -> dict[str, str]:
    """Query parameters as they may be written down."""
    return {
        plain(name): plain(value) if name in SHOWN_PARAMETERS else HIDDEN for name, value in query.items()
    }


def holds_secrets(call: Call) -> bool:
    """Whether bodies of this call hold what nobody may see, so that not even a hash is written down.

    A hash of little that is unknown can be turned back by trying.
    """
    return (call.group, call.plural) in SECRET_RESOURCES or call.subresource == "token"
