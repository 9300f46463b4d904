"""TokenRequest: a fresh token for a service account, maybe bound to an object.

A node gets tokens only for accounts of pods that run on it, and only bound to such a pod: so a token from a
node is never good for longer than the pod, and says on which node it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from dray.api.kinds import known_kind
from dray.clock import timestamp
from dray.server.auth.authn.service_account_tokens import BINDABLE, AccountTokens
from dray.server.http.errors import Failure, bad_request, conflict, forbidden, not_found
from dray.server.http.requests import User
from dray.server.objects.stored_object import Held
from dray.server.watch.cache import Cache

_ACCOUNT = known_kind("", "ServiceAccount")
_USUAL = 3600


class _Bound(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    api_version: str = ""
    name: str = ""
    uid: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    audiences: tuple[str, ...] | None = None
    expiration_seconds: int | None = None
    bound_object_ref: _Bound | None = None


class TokenRequests:
    """Hands out tokens of service accounts."""

    def __init__(self, cache: Cache, accounts: AccountTokens) -> None:
        self._cache = cache
        self._accounts = accounts

    def answer(self, user: User, namespace: str, name: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """The request with the token in its status."""
        account = self._cache.get(_ACCOUNT, namespace, name)
        if account is None:
            raise not_found(_ACCOUNT, name)
        spec = _read(document)
        seconds = _USUAL if spec.expiration_seconds is None else spec.expiration_seconds
        if not 600 <= seconds <= 2**32:
            raise _wrong("spec.expirationSeconds", "may not specify a duration less than 10 minutes")
        bound = self._bound(namespace, spec.bound_object_ref)
        if user.node is not None:
            _check_node(user, account, bound)
        _check_pod(account, bound)
        issued = self._accounts.issue(account, timedelta(seconds=seconds), spec.audiences or (), bound)
        written = {name: value for name, value in document.items() if name != "status"}
        written["spec"] = dict(document.get("spec") or {}) | {
            "audiences": list(spec.audiences or self._accounts.terms.audiences),
            "expirationSeconds": seconds,
        }
        status = {"token": issued.token, "expirationTimestamp": timestamp(issued.expires)}
        return written | {"status": status}

    def _bound(self, namespace: str, ref: _Bound | None) -> Held | None:
        if ref is None:
            return None
        kind = BINDABLE.get(ref.kind)
        if kind is None or ref.api_version not in ("", "v1"):
            raise _wrong("spec.boundObjectRef.kind", f"expected one of {', '.join(sorted(BINDABLE))}")
        held = self._cache.get(kind, namespace if kind.namespaced else "", ref.name)
        if held is None:
            raise not_found(kind, ref.name)
        if ref.uid and held.metadata.uid != ref.uid:
            why = f"the UID in the bound object reference ({ref.uid}) does not match the UID in record"
            raise conflict(kind, ref.name, why)
        return held


def _check_pod(account: Held, bound: Held | None) -> None:
    """A token says on which node it is used, so nobody gets one for a pod of somebody else."""
    if bound is None or bound.kind is not BINDABLE["Pod"]:
        return
    runs_as = (bound.document.get("spec") or {}).get("serviceAccountName")
    if runs_as != account.name:
        raise bad_request(
            f'cannot bind token for serviceaccount "{account.name}" to pod running with different '
            f"serviceaccount name: pod {bound.namespace}/{bound.name} runs as `{runs_as}`"
        )


def _check_node(user: User, account: Held, bound: Held | None) -> None:
    if bound is None or bound.kind != BINDABLE["Pod"]:
        raise forbidden(
            account.kind, account.name, f'node "{user.node}" can only request tokens bound to a pod'
        )
    spec = bound.document.get("spec") or {}
    if spec.get("nodeName") != user.node or spec.get("serviceAccountName") != account.name:
        why = f'node "{user.node}" can only request tokens for the accounts of pods that run on it'
        raise forbidden(account.kind, account.name, why)


def _read(document: Mapping[str, Any]) -> _Spec:
    try:
        return msgspec.convert(document.get("spec") or {}, _Spec)
    except msgspec.ValidationError as error:
        raise bad_request(f"spec: {error}") from None


def _wrong(field: str, what: str) -> Failure:
    return Failure(
        422,
        "Invalid",
        f'TokenRequest.authentication.k8s.io "" is invalid: {field}: Invalid value: {what}',
        {
            "group": "authentication.k8s.io",
            "kind": "TokenRequest",
            "causes": [{"reason": "FieldValueInvalid", "message": what, "field": field}],
        },
    )
