"""Redaction of audit events: values of unknown parameters, and bodies with secrets."""

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
"""The query parameters whose values are logged; of others only the names are."""

SECRET_RESOURCES = frozenset({("", "secrets"), ("authentication.k8s.io", "tokenreviews")})


def redact_query(query: Mapping[str, str]) -> dict[str, str]:
    """Return the query parameters without values that must not be logged."""
    return {
        redact(name): redact(value) if name in LOGGED_PARAMETERS else HIDDEN_TEXT
        for name, value in query.items()
    }


def has_secret_body(call: ApiCall) -> bool:
    """Return whether bodies of this call have secrets, so that not even a hash is logged.

    A hash of little unknown content can be reversed by trial.
    """
    return (call.group, call.plural) in SECRET_RESOURCES or call.subresource == "token"
