"""What of a request is not written down: values of parameters nobody knows, and bodies that hold secrets."""

from __future__ import annotations

from collections.abc import Mapping

from dray.server.http.requests import ApiCall
from dray.telemetry.redaction import HIDDEN_TEXT, redact

LOGGED_PARAMETERS = frozenset(
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


def redact_query(query: Mapping[str, str]) -> dict[str, str]:
    """Query parameters as they may be written down."""
    return {
        redact(name): redact(value) if name in LOGGED_PARAMETERS else HIDDEN_TEXT
        for name, value in query.items()
    }


def has_secret_body(call: ApiCall) -> bool:
    """Whether bodies of this call hold what nobody may see, so that not even a hash is written down.

    A hash of little that is unknown can be turned back by trying.
    """
    return (call.group, call.plural) in SECRET_RESOURCES or call.subresource == "token"
