"""TokenRequest: a new token for a service account, optionally bound to an object.

A node gets tokens only for accounts of pods that run on it, and only bound to such a pod: so a token from a
node is never valid for longer than the pod, and names the node it is used on.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from dray.api.kinds import get_kind
from dray.clock import format_timestamp
from dray.server.auth.authn.service_account_tokens import BINDABLE_KINDS, ServiceAccountTokens
from dray.server.http.errors import (
    ApiStatusError,
    new_bad_request,
    new_conflict,
    new_forbidden,
    new_not_found,
)
from dray.server.http.requests import RequestUser
from dray.server.objects.stored_object import StoredObject
from dray.server.watch.cache import WatchCache

_ACCOUNT = get_kind("", "ServiceAccount")
_DEFAULT_SECONDS = 3600


class _BoundObjectRef(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    api_version: str = ""
    name: str = ""
    uid: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    audiences: tuple[str, ...] | None = None
    expiration_seconds: int | None = None
    bound_object_ref: _BoundObjectRef | None = None


class TokenRequestIssuer:
    """Answers token requests."""

    def __init__(self, cache: WatchCache, account_tokens: ServiceAccountTokens) -> None:
        self._cache = cache
        self._account_tokens = account_tokens

    def answer(
        self, user: RequestUser, namespace: str, name: str, document: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the request with the token in its status."""
        account = self._cache.get(_ACCOUNT, namespace, name)
        if account is None:
            raise new_not_found(_ACCOUNT, name)
        spec = _read_spec(document)
        seconds = _DEFAULT_SECONDS if spec.expiration_seconds is None else spec.expiration_seconds
        if not 600 <= seconds <= 2**32:
            raise _build_invalid("spec.expirationSeconds", "may not specify a duration less than 10 minutes")
        bound = self._find_bound_object(account, spec.bound_object_ref)
        if user.node_name is not None:
            _check_node_request(user, account, bound)
        if bound is not None:
            _check_bound_pod(account, bound)
            _check_bound_uid(bound, spec.bound_object_ref)
        issued = self._account_tokens.issue(account, timedelta(seconds=seconds), spec.audiences or (), bound)
        written = {name: value for name, value in document.items() if name != "status"}
        written["spec"] = dict(document.get("spec") or {}) | {
            "audiences": list(spec.audiences or self._account_tokens.options.audiences),
            "expirationSeconds": seconds,
        }
        status = {"token": issued.token, "expirationTimestamp": format_timestamp(issued.expires)}
        return written | {"status": status}

    def _find_bound_object(self, account: StoredObject, ref: _BoundObjectRef | None) -> StoredObject | None:
        if ref is None:
            return None
        kind = BINDABLE_KINDS.get(ref.kind)
        if kind is None or "/" in ref.api_version:
            expected = ", ".join(sorted(BINDABLE_KINDS))
            raise new_bad_request(f"cannot bind token to an object of kind `{ref.kind}`: expected {expected}")
        stored = self._cache.get(kind, account.namespace if kind.namespaced else "", ref.name)
        if stored is None:
            raise new_not_found(kind, ref.name)
        return stored


def _check_bound_uid(bound: StoredObject, ref: _BoundObjectRef | None) -> None:
    """Refuse a reference to an object that was replaced by another of its name."""
    if ref is not None and ref.uid and bound.metadata.uid != ref.uid:
        why = f"the UID in the bound object reference ({ref.uid}) does not match the UID in record"
        raise new_conflict(bound.kind, bound.name, why)


def _check_bound_pod(account: StoredObject, bound: StoredObject) -> None:
    """Check the pod of a bound token: a token names its node, so it must not be for
    a pod of another account.
    """
    if bound.kind is not BINDABLE_KINDS["Pod"]:
        return
    runs_as = (bound.document.get("spec") or {}).get("serviceAccountName")
    if runs_as != account.name:
        raise new_bad_request(
            f'cannot bind token for serviceaccount "{account.name}" to pod running with different '
            f"serviceaccount name: pod {bound.namespace}/{bound.name} runs as `{runs_as}`"
        )


def _check_node_request(user: RequestUser, account: StoredObject, bound: StoredObject | None) -> None:
    if bound is None or bound.kind != BINDABLE_KINDS["Pod"]:
        raise new_forbidden(
            account.kind, account.name, f'node "{user.node_name}" can only request tokens bound to a pod'
        )
    spec = bound.document.get("spec") or {}
    if spec.get("nodeName") != user.node_name or spec.get("serviceAccountName") != account.name:
        why = f'node "{user.node_name}" can only request tokens for the accounts of pods that run on it'
        raise new_forbidden(account.kind, account.name, why)


def _read_spec(document: Mapping[str, Any]) -> _Spec:
    try:
        return msgspec.convert(document.get("spec") or {}, _Spec)
    except msgspec.ValidationError as error:
        raise new_bad_request(f"spec: {error}") from None


def _build_invalid(field: str, what: str) -> ApiStatusError:
    return ApiStatusError(
        422,
        "Invalid",
        f'TokenRequest.authentication.k8s.io "" is invalid: {field}: Invalid value: {what}',
        {
            "group": "authentication.k8s.io",
            "kind": "TokenRequest",
            "causes": [{"reason": "FieldValueInvalid", "message": what, "field": field}],
        },
    )
