"""Admission webhooks as the registry calls them: the protocols, and external admission without webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dray.api.kinds import Kind
from dray.server.admission.webhooks.review_objects import ReviewObject, StoredReviewObject
from dray.server.http.requests import ApiRequest
from dray.server.objects.stored_object import StoredObject

SubresourceKind = tuple[str, str, str]
"""Group, version and kind of the body of a subresource."""


class AdmissionDispatcher(Protocol):
    """Calls the webhooks that review one write."""

    warnings: list[str]
    deadline: float

    async def run_mutating(
        self, subject: ReviewObject | None, old: StoredReviewObject | None
    ) -> ReviewObject | None: ...

    async def run_validating(self, subject: ReviewObject | None, old: StoredReviewObject | None) -> None: ...


class ExternalAdmission(Protocol):
    """Admission webhooks, as the registry calls them."""

    @property
    def webhooks(self) -> Sequence[object]: ...

    def build_dispatcher(
        self,
        request: ApiRequest,
        kind: Kind,
        object_name: tuple[str, str],
        old: StoredObject | None,
        deadline: float = 0.0,
    ) -> AdmissionDispatcher | None: ...

    def reviews_subresource(
        self, request: ApiRequest, kind: Kind, reviewed_kind: SubresourceKind, body: dict[str, Any]
    ) -> bool: ...

    async def admit_subresource(
        self, request: ApiRequest, kind: Kind, reviewed_kind: SubresourceKind, body: dict[str, Any]
    ) -> dict[str, Any]: ...


class NoWebhooks:
    """External admission without webhooks."""

    webhooks: Sequence[object] = ()

    def build_dispatcher(
        self,
        request: ApiRequest,
        kind: Kind,
        object_name: tuple[str, str],
        old: StoredObject | None,
        deadline: float = 0.0,
    ) -> AdmissionDispatcher | None:
        return None

    def reviews_subresource(
        self, request: ApiRequest, kind: Kind, reviewed_kind: SubresourceKind, body: dict[str, Any]
    ) -> bool:
        return False

    async def admit_subresource(
        self, request: ApiRequest, kind: Kind, reviewed_kind: SubresourceKind, body: dict[str, Any]
    ) -> dict[str, Any]:
        return body
