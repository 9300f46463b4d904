"""Access and token reviews: questions about users and rights, answered and never stored.

Each answer is the document that was sent with its `status` filled in. A malformed review is a 400 or 422; a
review whose answer is no is a 201 like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from dray.server.auth.authn.authentication import Authenticator, add_authenticated_group
from dray.server.auth.authn.service_account_tokens import ServiceAccountTokens
from dray.server.auth.authz.authorizer import UnionAuthorizer
from dray.server.auth.authz.policy_rules import AccessAttributes
from dray.server.http.errors import ApiStatusError, new_bad_request
from dray.server.http.requests import RequestUser

Document = Mapping[str, Any]


class _SpecView(msgspec.Struct, frozen=True, rename="camel"):
    """Specs of reviews, with the field names of Kubernetes; absent fields have their defaults."""


class _ResourceAttributes(_SpecView, frozen=True):
    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""


class _PathAttributes(_SpecView, frozen=True):
    path: str = ""
    verb: str = ""


class _AccessSpec(_SpecView, frozen=True):
    resource_attributes: _ResourceAttributes | None = None
    non_resource_attributes: _PathAttributes | None = None
    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, tuple[str, ...]] = {}


class _RulesSpec(_SpecView, frozen=True):
    namespace: str = ""


class _TokenSpec(_SpecView, frozen=True):
    token: str = ""
    audiences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AccessReviews:
    """Answers reviews."""

    authorizer: UnionAuthorizer
    authenticator: Authenticator
    account_tokens: ServiceAccountTokens | None = None

    def review_self_subject_access(self, user: RequestUser, document: Document) -> dict[str, Any]:
        """SelfSubjectAccessReview: may the caller do this?"""
        return self._answer_access_review(document, user, _read_spec(document, _AccessSpec))

    def review_subject_access(self, document: Document) -> dict[str, Any]:
        """SubjectAccessReview: may this user do this?"""
        spec = _read_spec(document, _AccessSpec)
        if not spec.user and not spec.groups:
            raise _build_invalid(
                "SubjectAccessReview", "spec.user", "at least one of user or group must be specified"
            )
        user = RequestUser(spec.user, spec.groups, spec.uid, spec.extra)
        return self._answer_access_review(document, user, spec)

    def review_local_subject_access(self, namespace: str, document: Document) -> dict[str, Any]:
        """LocalSubjectAccessReview: may this user do this in this namespace?"""
        spec = _read_spec(document, _AccessSpec)
        attributes = spec.resource_attributes
        if attributes is None or attributes.namespace != namespace:
            what = f'must be the namespace of the review, "{namespace}"'
            raise _build_invalid("LocalSubjectAccessReview", "spec.resourceAttributes.namespace", what)
        return self.review_subject_access(document)

    def review_self_subject_rules(self, user: RequestUser, document: Document) -> dict[str, Any]:
        """SelfSubjectRulesReview: what may the caller do in this namespace?"""
        namespace = _read_spec(document, _RulesSpec).namespace
        if not namespace:
            raise new_bad_request("no namespace on request; set `spec.namespace`")
        rules = [rule.to_document() for rule in self.authorizer.rbac.list_user_rules(user, namespace)]
        status: dict[str, Any] = {
            "resourceRules": [rule for rule in rules if "resources" in rule],
            "nonResourceRules": [rule for rule in rules if "nonResourceURLs" in rule],
            "incomplete": user.node_name is not None,
        }
        if user.node_name is not None:
            status["evaluationError"] = (
                "what a node may see follows from the pods on it and is no list of rules"
            )
        return {**document, "status": status}

    def review_self_subject(self, user: RequestUser, document: Document) -> dict[str, Any]:
        """SelfSubjectReview: who is the caller?"""
        return {**document, "status": {"userInfo": user.to_document()}}

    def review_token(self, document: Document) -> dict[str, Any]:
        """TokenReview: whose token is this? The token itself is not returned."""
        spec = _read_spec(document, _TokenSpec)
        kept = {name: value for name, value in document.items() if name not in ("spec", "status")}
        kept["spec"] = {"audiences": list(spec.audiences)} if spec.audiences else {}
        if not spec.token:
            raise new_bad_request("token is required for TokenReview in authentication")
        found = self._find_token_user(spec)
        if found is None:
            return kept | {"status": {"authenticated": False, "error": "the token is not good here and now"}}
        user, audiences = found
        status = {"authenticated": True, "user": add_authenticated_group(user).to_document()}
        return kept | {"status": status | ({"audiences": list(audiences)} if audiences else {})}

    def _find_token_user(self, spec: _TokenSpec) -> tuple[RequestUser, tuple[str, ...]] | None:
        if self.account_tokens is not None:
            verified = self.account_tokens.verify(spec.token, spec.audiences)
            if verified is not None:
                return verified.user, verified.audiences
        # Tokens of the file are for this server alone.
        user = None if spec.audiences else self.authenticator.authenticate_token(spec.token)
        return None if user is None else (user, ())

    def _answer_access_review(
        self, document: Document, user: RequestUser, spec: _AccessSpec
    ) -> dict[str, Any]:
        decision = self.authorizer.authorize(user, _read_attributes(str(document.get("kind", "")), spec))
        status: dict[str, Any] = {"allowed": decision.allowed}
        reason = decision.reason if decision.allowed else decision.hint
        return {**document, "status": status | ({"reason": reason} if reason else {})}


def _read_attributes(kind: str, spec: _AccessSpec) -> AccessAttributes:
    on, path = spec.resource_attributes, spec.non_resource_attributes
    if (on is None) == (path is None):
        what = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise _build_invalid(kind, "spec.resourceAttributes", what)
    if path is not None:
        return AccessAttributes(path.verb, path=path.path)
    assert on is not None
    return AccessAttributes(on.verb, on.group, on.resource, on.subresource, on.namespace, on.name)


_T = TypeVar("_T")


def _read_spec(document: Document, spec_type: type[_T]) -> _T:
    try:
        return msgspec.convert(document.get("spec") or {}, spec_type)
    except msgspec.ValidationError as error:
        raise new_bad_request(f"spec: {error}") from None


def _build_invalid(kind: str, field: str, what: str) -> ApiStatusError:
    return ApiStatusError(
        422,
        "Invalid",
        f'{kind}.authorization.k8s.io "" is invalid: {field}: Invalid value: {what}',
        {
            "group": "authorization.k8s.io",
            "kind": kind,
            "causes": [{"reason": "FieldValueInvalid", "message": what, "field": field}],
        },
    )
