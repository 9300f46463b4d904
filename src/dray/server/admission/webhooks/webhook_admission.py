"""The entry point to webhooks: finds the webhooks of a request and dispatches it to them.

Requests that the server makes to itself (garbage collection, bootstrap objects) skip webhooks: they follow
from an earlier request, or come before any webhook could answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from dray.api.admission.matching import AdmissionTarget
from dray.api.admission.review import AdmissionRequest
from dray.api.admission.webhook_configuration import CREATE, DELETE, UPDATE
from dray.api.kinds import Kind, get_kind
from dray.clock import Clock
from dray.server.admission.webhooks.active_webhooks import ActiveWebhook, WebhookIndex
from dray.server.admission.webhooks.dispatch import WebhookDispatcher, WebhookObserver
from dray.server.admission.webhooks.review_objects import SubresourceBody
from dray.server.admission.webhooks.webhook_client import WebhookClient
from dray.server.http.request_body import decode_options as body_options
from dray.server.http.requests import ApiRequest
from dray.server.objects.stored_object import StoredObject
from dray.server.watch.cache import WatchCache

_NAMESPACE: Final = get_kind("", "Namespace")
_OPTIONS_KINDS: Mapping[str, str] = {
    CREATE: "CreateOptions",
    UPDATE: "UpdateOptions",
    DELETE: "DeleteOptions",
}

ReviewedKind = tuple[str, str, str]
"""Group, version and kind of the object of a request."""


class WebhookAdmission:
    """Dispatches requests to the active webhooks."""

    def __init__(
        self,
        cache: WatchCache,
        client: WebhookClient,
        observer: WebhookObserver,
        clock: Clock,
        generate_uid: Callable[[], str],
    ) -> None:
        self._cache = cache
        self._index = WebhookIndex(cache, observer.record_unreadable)
        self._client, self._observer = client, observer
        self._clock, self._generate_uid = clock, generate_uid

    @property
    def webhooks(self) -> tuple[ActiveWebhook, ...]:
        """All active webhooks; empty when none is configured."""
        return self._index.webhooks

    def build_dispatcher(
        self,
        request: ApiRequest,
        kind: Kind,
        object_name: tuple[str, str],
        old: StoredObject | None,
        deadline: float = 0.0,
    ) -> WebhookDispatcher | None:
        """Build the dispatcher for a write; None when no webhook matches it."""
        operation = DELETE if request.call.verb == "delete" else CREATE if old is None else UPDATE
        about = (kind.group, request.call.version, kind.name)
        return self._build_dispatcher(request, (kind, about), operation, object_name, deadline)

    async def admit_subresource(
        self, request: ApiRequest, kind: Kind, reviewed_kind: ReviewedKind, body: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the body of a subresource as webhooks change it; raises an `ApiStatusError` when one
        refuses.
        """
        if not self.webhooks or not request.audit_id:
            return body
        await self._cache.wait_until_fresh()
        dispatcher = self._build_subresource_dispatcher(request, kind, reviewed_kind, body)
        if dispatcher is None:
            return body
        named = {
            "apiVersion": f"{reviewed_kind[0]}/{reviewed_kind[1]}" if reviewed_kind[0] else reviewed_kind[1],
            "kind": reviewed_kind[2],
        }
        reviewed = await dispatcher.run_mutating(SubresourceBody({**named, **body}), None)
        assert isinstance(reviewed, SubresourceBody)
        await dispatcher.run_validating(reviewed, None)
        return reviewed.body

    def reviews_subresource(
        self, request: ApiRequest, kind: Kind, reviewed_kind: ReviewedKind, body: dict[str, Any]
    ) -> bool:
        """Return whether a webhook matches the body of a subresource."""
        return self._build_subresource_dispatcher(request, kind, reviewed_kind, body) is not None

    def _build_subresource_dispatcher(
        self, request: ApiRequest, kind: Kind, reviewed_kind: ReviewedKind, body: dict[str, Any]
    ) -> WebhookDispatcher | None:
        metadata = body.get("metadata")
        sent_name = metadata.get("name") if isinstance(metadata, dict) else ""
        place = (request.call.namespace, request.call.name or str(sent_name or ""))
        return self._build_dispatcher(request, (kind, reviewed_kind), CREATE, place, 0.0)

    def _build_dispatcher(
        self,
        request: ApiRequest,
        of: tuple[Kind, ReviewedKind],
        operation: str,
        place: tuple[str, str],
        deadline: float,
    ) -> WebhookDispatcher | None:
        call, (kind, about), (namespace, name) = request.call, of, place
        target = AdmissionTarget(
            operation, call.group, call.version, call.plural, call.subresource, kind.namespaced, kind.versions
        )
        named = self._index.find_matching(target)
        home = self._cache.get(_NAMESPACE, "", namespace) if kind.namespaced else None
        if not named or (kind.namespaced and home is None and operation == CREATE):
            return None  # a missing namespace is refused by the rules of the server
        labels = None if not kind.namespaced else {} if home is None else home.metadata.labels
        question = AdmissionRequest(
            target,
            call.version,
            about,
            name,
            name if kind is _NAMESPACE else namespace,
            request.user.to_document(),
            _build_options(request, operation),
            call.dry_run,
        )
        return WebhookDispatcher(
            self._client,
            self._observer,
            named,
            question,
            labels,
            self._generate_uid,
            self._clock.monotonic,
            request.audit_id,
            deadline,
            kind is _NAMESPACE,
        )


def _build_options(request: ApiRequest, operation: str) -> dict[str, Any]:
    """Return the options of a request, in the form of its operation: a patch is an update, or creates."""
    call = request.call
    given: dict[str, Any] = dict(body_options(request)) if operation == DELETE and request.body else {}
    for name in ("fieldManager", "fieldValidation", "propagationPolicy"):
        if call.query.get(name):
            given.setdefault(name, call.query[name])
    if call.dry_run:
        given["dryRun"] = ["All"]
    return {**given, "kind": _OPTIONS_KINDS[operation], "apiVersion": "meta.k8s.io/v1"}
