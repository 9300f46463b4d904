"""Review endpoints: access reviews, token reviews and token requests, which are answered and not stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dray.server.auth.authn.token_requests import TokenRequestIssuer
from dray.server.auth.authz.reviews import AccessReviews
from dray.server.http.errors import new_bad_request
from dray.server.http.request_body import decode_message
from dray.server.http.requests import REVIEW_KINDS, ApiRequest, ApiResponse, build_json_response
from dray.server.watch.cache import WatchCache

Document = Mapping[str, Any]


class ReviewEndpoints:
    """Answers reviews and token requests."""

    def __init__(self, cache: WatchCache, reviews: AccessReviews, tokens: TokenRequestIssuer) -> None:
        self._cache = cache
        self._reviews = reviews
        self._tokens = tokens

    async def answer(self, request: ApiRequest) -> ApiResponse:
        """Answer with the review of the request, its result in `status`."""
        call = request.call
        if call.subresource == "token":
            kind, api_version = "TokenRequest", "authentication.k8s.io/v1"
        else:
            kind, api_version = REVIEW_KINDS[call.group, call.plural][0], f"{call.group}/{call.version}"
        if not request.body.strip():
            raise new_bad_request(f"the request has no body; expected a {kind}")
        review = decode_message(request, api_version, kind)
        await self._cache.wait_until_fresh()
        if call.subresource == "token":
            token = self._tokens.answer(request.user, call.namespace, call.name, review)
            return build_json_response({**token, "kind": kind, "apiVersion": api_version}, 201)
        envelope = {"kind": kind, "apiVersion": api_version}
        given = {**review, **envelope, "metadata": review.get("metadata") or {"creationTimestamp": None}}
        return build_json_response(_REVIEWS_BY_KIND[kind](self._reviews, request, given), 201)


_REVIEWS_BY_KIND: Mapping[str, Callable[[AccessReviews, ApiRequest, Document], dict[str, Any]]] = {
    "SelfSubjectAccessReview": lambda r, request, given: r.review_self_subject_access(request.user, given),
    "SelfSubjectRulesReview": lambda r, request, given: r.review_self_subject_rules(request.user, given),
    "SelfSubjectReview": lambda r, request, given: r.review_self_subject(request.user, given),
    "SubjectAccessReview": lambda r, request, given: r.review_subject_access(given),
    "LocalSubjectAccessReview": lambda r, request, given: r.review_local_subject_access(
        request.call.namespace, given
    ),
    "TokenReview": lambda r, request, given: r.review_token(given),
}
