"""Reviews: questions about identities and rights that clients put as objects, answered and never stored.

Each answer is the document that was sent with its `status` filled in. A question that makes no sense is a 400
or 422; a question that is answered with no is a 201 like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from dray.server.auth.authn.authentication import Authenticator, authenticated
from dray.server.auth.authn.service_account_tokens import AccountTokens
from dray.server.auth.authz.authorizer import Access
from dray.server.auth.authz.policy_rules import Asked
from dray.server.http.errors import Failure, bad_request
from dray.server.http.requests import User

Document = Mapping[str, Any]


class _View(msgspec.Struct, frozen=True, rename="camel"):
    """How questions are read: the names of Kubernetes, absence is the default."""


class _ResourceAttributes(_View, frozen=True):
    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""


class _PathAttributes(_View, frozen=True):
    path: str = ""
    verb: str = ""


class _AccessSpec(_View, frozen=True):
    resource_attributes: _ResourceAttributes | None = None
    non_resource_attributes: _PathAttributes | None = None
    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, tuple[str, ...]] = {}


class _RulesSpec(_View, frozen=True):
    namespace: str = ""


class _TokenSpec(_View, frozen=True):
    token: str = ""
    audiences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reviews:
    """Answers reviews."""

    access: Access
    authenticator: Authenticator
    accounts: AccountTokens | None = None

    def self_subject_access(self, user: User, document: Document) -> dict[str, Any]:
        """SelfSubjectAccessReview: may I?"""
        return self._answered(document, user, _spec(document, _AccessSpec))

    def subject_access(self, document: Document) -> dict[str, Any]:
        """SubjectAccessReview: may they?"""
        spec = _spec(document, _AccessSpec)
        if not spec.user and not spec.groups:
            raise _wrong(
                "SubjectAccessReview", "spec.user", "at least one of user or group must be specified"
            )
        user = User(spec.user, spec.groups, spec.uid, spec.extra)
        return self._answered(document, user, spec)

    def local_subject_access(self, namespace: str, document: Document) -> dict[str, Any]:
        """LocalSubjectAccessReview: may they, in this namespace?"""
        spec = _spec(document, _AccessSpec)
        asked = spec.resource_attributes
        if asked is None or asked.namespace != namespace:
            what = f'must be the namespace of the review, "{namespace}"'
            raise _wrong("LocalSubjectAccessReview", "spec.resourceAttributes.namespace", what)
        return self.subject_access(document)

    def self_subject_rules(self, user: User, document: Document) -> dict[str, Any]:
        """SelfSubjectRulesReview: what may I do in this namespace?"""
        namespace = _spec(document, _RulesSpec).namespace
        if not namespace:
            raise bad_request("no namespace on request; set `spec.namespace`")
        rules = [rule.document() for rule in self.access.rbac.rules_for(user, namespace)]
        status: dict[str, Any] = {
            "resourceRules": [rule for rule in rules if "resources" in rule],
            "nonResourceRules": [rule for rule in rules if "nonResourceURLs" in rule],
            "incomplete": user.node is not None,
        }
        if user.node is not None:
            status["evaluationError"] = (
                "what a node may see follows from the pods on it and is no list of rules"
            )
        return {**document, "status": status}

    def self_subject(self, user: User, document: Document) -> dict[str, Any]:
        """SelfSubjectReview: who am I?"""
        return {**document, "status": {"userInfo": user_document(user)}}

    def token(self, document: Document) -> dict[str, Any]:
        """TokenReview: whose token is this? The token itself is not sent back."""
        spec = _spec(document, _TokenSpec)
        kept = {name: value for name, value in document.items() if name not in ("spec", "status")}
        kept["spec"] = {"audiences": list(spec.audiences)} if spec.audiences else {}
        if not spec.token:
            raise bad_request("token is required for TokenReview in authentication")
        found = self._token_user(spec)
        if found is None:
            return kept | {"status": {"authenticated": False, "error": "the token is not good here and now"}}
        user, audiences = found
        status = {"authenticated": True, "user": user_document(authenticated(user))}
        return kept | {"status": status | ({"audiences": list(audiences)} if audiences else {})}

    def _token_user(self, spec: _TokenSpec) -> tuple[User, tuple[str, ...]] | None:
        if self.accounts is not None:
            verified = self.accounts.verify(spec.token, spec.audiences)
            if verified is not None:
                return verified.user, verified.audiences
        # Tokens of the file are for this server and for nobody else.
        user = None if spec.audiences else self.authenticator.bearer(spec.token)
        return None if user is None else (user, ())

    def _answered(self, document: Document, user: User, spec: _AccessSpec) -> dict[str, Any]:
        decision = self.access.decide(user, _asked(str(document.get("kind", "")), spec))
        status: dict[str, Any] = {"allowed": decision.allowed}
        reason = decision.reason if decision.allowed else decision.hint
        return {**document, "status": status | ({"reason": reason} if reason else {})}


def _asked(kind: str, spec: _AccessSpec) -> Asked:
    on, path = spec.resource_attributes, spec.non_resource_attributes
    if (on is None) == (path is None):
        what = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise _wrong(kind, "spec.resourceAttributes", what)
    if path is not None:
        return Asked(path.verb, path=path.path)
    assert on is not None
    return Asked(on.verb, on.group, on.resource, on.subresource, on.namespace, on.name)


def user_document(user: User) -> dict[str, Any]:
    """A user, as reviews and the audit log write it."""
    fields: dict[str, Any] = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    return {field: value for field, value in fields.items() if value}


_T = TypeVar("_T")


def _spec(document: Document, shape: type[_T]) -> _T:
    try:
        return msgspec.convert(document.get("spec") or {}, shape)
    except msgspec.ValidationError as error:
        raise bad_request(f"spec: {error}") from None


def _wrong(kind: str, field: str, what: str) -> Failure:
    return Failure(
        422,
        "Invalid",
        f'{kind}.authorization.k8s.io "" is invalid: {field}: Invalid value: {what}',
        {
            "group": "authorization.k8s.io",
            "kind": kind,
            "causes": [{"reason": "FieldValueInvalid", "message": what, "field": field}],
        },
    )
