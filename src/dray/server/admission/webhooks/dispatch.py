"""Dispatch of one request to its webhooks: which are called, in which order, and with what result.

Theory of operation: first the mutating webhooks, one after the other, each with the result of the one before;
then, when the rules of the server have admitted the result, the validating webhooks, all at once. A webhook
that cannot be called fails the request or is ignored, as its configuration says. All webhooks of a request
share one time-out, however often the request is retried.

Nothing is stored and no lock is held here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from dray.api.admission.match_conditions import ConditionBindings, bind_variables, evaluate_conditions
from dray.api.admission.matching import AdmissionLabels, matches_selectors
from dray.api.admission.reinvocation import ReinvocationTracker
from dray.api.admission.review import (
    AdmissionRequest,
    AdmissionResponse,
    InvalidAdmissionResponse,
    build_review,
    format_denial,
    parse_review_response,
)
from dray.api.admission.webhook_configuration import NO_EFFECTS, NONE_ON_DRY_RUN
from dray.api.json_text import read_json, write_json
from dray.server.admission.webhooks.active_webhooks import ActiveWebhook, MatchedWebhook
from dray.server.admission.webhooks.review_objects import ReviewObject, StoredReviewObject
from dray.server.admission.webhooks.webhook_client import WebhookClient, WebhookFailure
from dray.server.http.errors import ApiStatusError, new_bad_request, new_internal_error, new_timeout
from dray.server.http.responses import build_warning_headers
from dray.server.patch import json_patch
from dray.server.patch.errors import PatchError
from dray.values.label_selectors import LabelSelectorError

TOTAL_TIMEOUT: Final = 60.0
"""Time-out of all webhooks of a request together."""
_NULL: Final = msgspec.Raw(b"null")


class WebhookObserver(Protocol):
    """Receives what webhooks do, for metrics, the log and the audit log."""

    def record_call(self, hook: ActiveWebhook, operation: str, seconds: float, outcome: str) -> None:
        """Record a call; the outcome is `allowed`, `denied`, `failed` or `ignored`."""

    def record_failure(self, hook: ActiveWebhook, why: str) -> None:
        """Record a webhook that could not be called."""

    def record_annotations(self, audit_id: str, annotations: Mapping[str, str]) -> None:
        """Record the audit annotations of webhooks for a request."""

    def record_unreadable(self, configuration: str, why: str) -> None:
        """Record a configuration that cannot be parsed."""


@dataclass
class WebhookDispatcher:
    """Calls the webhooks that match a request."""

    client: WebhookClient
    observer: WebhookObserver
    matched: Sequence[MatchedWebhook]
    review: AdmissionRequest
    """Its version is that of the request; each webhook gets its own."""
    namespace: Mapping[str, str] | None
    """Labels of the namespace; None for cluster-scoped objects."""
    generate_uid: Callable[[], str]
    monotonic: Callable[[], float]
    audit_id: str = ""
    deadline: float = 0.0
    is_namespace: bool = False
    """Whether the object is a namespace, which is selected by its own labels."""
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.deadline = self.deadline or self.monotonic() + TOTAL_TIMEOUT

    async def run_mutating(
        self, subject: ReviewObject | None, old: StoredReviewObject | None
    ) -> ReviewObject | None:
        """Return the object as the mutating webhooks change it; None stays None when it is deleted."""
        changing = [named for named in self.matched if named[0].mutating]
        turns = ReinvocationTracker()
        for position, named in enumerate(changing):
            if self._is_matched(named, subject, old):
                after = await self._call_mutating(named, subject, old)
                turns.record_call(
                    position, wants_reinvocation=named[0].is_reinvoked, changed=after is not subject
                )
                subject = after
        for position in turns.list_due():
            if self._is_matched(changing[position], subject, old):
                subject = await self._call_mutating(changing[position], subject, old)
        return subject

    async def run_validating(self, subject: ReviewObject | None, old: StoredReviewObject | None) -> None:
        """Call the validating webhooks; the first refusal, in their order, is raised."""
        validating = [named for named in self.matched if not named[0].mutating]
        validating = [named for named in validating if self._is_matched(named, subject, old)]
        if len(validating) == 1:
            await self._call_webhook(validating[0], subject, old)
            return
        answers = await asyncio.gather(
            *(self._call_webhook(named, subject, old) for named in validating), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    def _is_matched(
        self, matched: MatchedWebhook, subject: ReviewObject | None, old: StoredReviewObject | None
    ) -> bool:
        """Return whether selectors and conditions of a webhook match the object in its current state."""
        hook, version = matched
        labels = tuple(each.labels for each in (subject, old) if each is not None)
        home = labels[0] if self.is_namespace else self.namespace
        try:
            if not matches_selectors(hook.webhook, AdmissionLabels(home, labels)):
                return False
        except LabelSelectorError as wrong:  # stored without validation
            self._fail_or_ignore(hook, 0.0, f"its selectors cannot be read: {wrong}")
            return False

        def build_bindings() -> ConditionBindings:
            request = self._build_review("", version, subject, old)["request"]
            return bind_variables(
                request, *(read_json(bytes(request[name])) for name in ("object", "oldObject"))
            )

        answer = evaluate_conditions(hook.webhook.match_conditions, build_bindings)
        if not isinstance(answer, InvalidAdmissionResponse):
            return answer
        self._fail_or_ignore(hook, 0.0, answer.reason)
        return False

    async def _call_mutating(
        self, matched: MatchedWebhook, subject: ReviewObject | None, old: StoredReviewObject | None
    ) -> ReviewObject | None:
        """Return the object as one webhook changes it: the very same when it changes nothing."""
        ruling = await self._call_webhook(matched, subject, old)
        if ruling is None or not ruling.patch:
            return subject
        (hook, version), name = matched, matched[0].name
        if subject is None:
            raise new_internal_error(
                f'admission webhook "{name}" attempted to modify the object, '
                "which is not supported for this operation"
            )
        before = subject.to_document(version)
        try:
            after = json_patch.apply(before, list(ruling.patch))
            return subject if after == before else subject.replace(version, after)
        except PatchError as wrong:
            why = wrong.message
        except ApiStatusError as wrong:
            why = wrong.message
        self.observer.record_failure(hook, f"its patch cannot be used: {why}")
        raise new_internal_error(f'admission webhook "{name}" sent a patch that cannot be used: {why}')

    # --- calling one ---

    async def _call_webhook(
        self, matched: MatchedWebhook, subject: ReviewObject | None, old: StoredReviewObject | None
    ) -> AdmissionResponse | None:
        """Return the answer of a webhook; None when it could not be called and may be ignored."""
        hook, version = matched
        operation = self.review.target.operation
        if self.review.dry_run and hook.webhook.side_effects not in (NO_EFFECTS, NONE_ON_DRY_RUN):
            raise self._attach_warnings(
                new_bad_request(f'admission webhook "{hook.name}" does not support dry run')
            )
        began = self.monotonic()
        seconds = min(hook.timeout_seconds, self.deadline - began)
        if seconds <= 0:
            raise self._attach_warnings(
                new_timeout(f"the webhooks of this request took more than {TOTAL_TIMEOUT:g} seconds")
            )
        uid = self.generate_uid()
        answer = await self.client.call(
            hook, write_json(self._build_review(uid, version, subject, old)), seconds
        )
        ruling = (
            answer
            if isinstance(answer, WebhookFailure)
            else parse_review_response(answer, uid, mutating=hook.mutating)
        )
        took = self.monotonic() - began
        if isinstance(ruling, WebhookFailure | InvalidAdmissionResponse):
            self._fail_or_ignore(hook, took, ruling.reason)
            return None
        self.warnings += ruling.warnings
        self.observer.record_call(hook, operation, took, "allowed" if ruling.allowed else "denied")
        if ruling.annotations:
            marks = {f"{hook.name}/{key}": value for key, value in ruling.annotations.items()}
            self.observer.record_annotations(self.audit_id, marks)
        if not ruling.allowed:
            raise self._attach_warnings(
                ApiStatusError(ruling.code, ruling.reason, format_denial(hook.name, ruling))
            )
        return ruling

    def _fail_or_ignore(self, hook: ActiveWebhook, seconds: float, why: str) -> None:
        """Refuse the request, or go on without a webhook, as its configuration says."""
        operation = self.review.target.operation
        self.observer.record_call(hook, operation, seconds, "ignored" if hook.ignores_failure else "failed")
        self.observer.record_failure(hook, why)
        if not hook.ignores_failure:
            raise self._attach_warnings(new_internal_error(f'failed calling webhook "{hook.name}": {why}'))

    def _build_review(
        self, uid: str, version: str, subject: ReviewObject | None, old: StoredReviewObject | None
    ) -> dict[str, Any]:
        question = msgspec.structs.replace(self.review, version=version)
        new_text = _NULL if subject is None else subject.to_json(version)
        old_text = _NULL if old is None else old.to_json(version)
        return build_review(question, uid, new_text, old_text)

    def _attach_warnings(self, failure: ApiStatusError) -> ApiStatusError:
        """Return a refusal with the warnings so far: they may be about what is refused."""
        failure.headers = (*failure.headers, *build_warning_headers(self.warnings))
        return failure
