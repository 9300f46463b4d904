"""Questions that are answered and not kept: reviews of rights and identities, and tokens of accounts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dray.server.auth.authn.token_requests import TokenRequests
from dray.server.auth.authz.reviews import Reviews
from dray.server.http.errors import bad_request
from dray.server.http.request_body import body_document
from dray.server.http.requests import Answer, Request, json_answer
from dray.server.http.routing import REVIEWS
from dray.server.watch.cache import Cache

Document = Mapping[str, Any]


class Reviewing:
    """Answers reviews and token requests."""

    def __init__(self, cache: Cache, reviews: Reviews, tokens: TokenRequests) -> None:
        self._cache = cache
        self._reviews = reviews
        self._tokens = tokens

    async def answer(self, request: Request) -> Answer:
        """The question, with its answer in `status`."""
        question = body_document(request)
        if not isinstance(question, dict):
            raise bad_request("the body of a review must be an object")
        await self._cache.caught_up()
        call = request.call
        if call.subresource == "token":
            token = self._tokens.answer(request.user, call.namespace, call.name, question)
            return json_answer(
                {**token, "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"}, 201
            )
        kind, _ = REVIEWS[call.group, call.plural]
        named = {"kind": kind, "apiVersion": f"{call.group}/{call.version}"}
        given = {**question, **named, "metadata": question.get("metadata") or {"creationTimestamp": None}}
        return json_answer(_ANSWERS[kind](self._reviews, request, given), 201)


_ANSWERS: Mapping[str, Callable[[Reviews, Request, Document], dict[str, Any]]] = {
    "SelfSubjectAccessReview": lambda r, request, given: r.self_subject_access(request.user, given),
    "SelfSubjectRulesReview": lambda r, request, given: r.self_subject_rules(request.user, given),
    "SelfSubjectReview": lambda r, request, given: r.self_subject(request.user, given),
    "SubjectAccessReview": lambda r, request, given: r.subject_access(given),
    "LocalSubjectAccessReview": lambda r, request, given: r.local_subject_access(
        request.call.namespace, given
    ),
    "TokenReview": lambda r, request, given: r.token(given),
}
