"""One request before its webhooks: who is asked, in which order, and what comes of it.

Theory of operation: first those that may change the object, one after the other, each with what the one
before made of it; then, when the rules of the server have judged the result, those that only say yes or no,
all at once. A webhook that cannot be asked refuses the request or is passed over, as its configuration says.
All webhooks of a request together have a time, however often it is decided anew.

Rules for this file: nothing is stored and no lock is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

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
"""All webhooks of a request together."""
_NULL: Final = msgspec.Raw(b"null")


@dataclass(frozen=True)
class WebhookObserver:
    """Who hears of what webhooks do: metrics, the log, the audit log."""

    on_call: Callable[[ActiveWebhook, str, float, str], None]
    """Webhook, operation, seconds, and how it ended: `allowed`, `denied`, `failed` or `ignored`."""
    on_failure: Callable[[ActiveWebhook, str], None]
    """A webhook that could not be asked, and why."""
    on_annotations: Callable[[str, Mapping[str, str]], None]
    """What webhooks want to have in the audit log, by the id of the request."""
    on_unreadable: Callable[[str, str], None]
    """A configuration that cannot be read, and why."""


@dataclass
class WebhookDispatcher:
    """Asks the webhooks that name a request."""

    client: WebhookClient
    observer: WebhookObserver
    matched: Sequence[MatchedWebhook]
    review: AdmissionRequest
    """Its version is that of the request; each webhook is asked in its own."""
    namespace: Mapping[str, str] | None
    """Labels of the namespace; None outside of all."""
    generate_uid: Callable[[], str]
    monotonic: Callable[[], float]
    audit_id: str = ""
    deadline: float = 0.0
    is_namespace: bool = False
    """Whether it is about a namespace, which is selected by its own labels."""
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.deadline = self.deadline or self.monotonic() + TOTAL_TIMEOUT

    async def run_mutating(
        self, subject: ReviewObject | None, old: StoredReviewObject | None
    ) -> ReviewObject | None:
        """What those make of an object that may change it; None stays None when it is deleted."""
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
        """Ask those that only say yes or no; the first no, in their order, is told."""
        asking = [named for named in self.matched if not named[0].mutating]
        asking = [named for named in asking if self._is_matched(named, subject, old)]
        if len(asking) == 1:
            await self._call_webhook(asking[0], subject, old)
            return
        answers = await asyncio.gather(
            *(self._call_webhook(named, subject, old) for named in asking), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    def _is_matched(
        self, matched: MatchedWebhook, subject: ReviewObject | None, old: StoredReviewObject | None
    ) -> bool:
        """Whether selectors and conditions of a webhook take the object as it is by now."""
        hook, version = matched
        labels = tuple(each.labels for each in (subject, old) if each is not None)
        home = labels[0] if self.is_namespace else self.namespace
        try:
            if not matches_selectors(hook.webhook, AdmissionLabels(home, labels)):
                return False
        except LabelSelectorError as wrong:  # from a store, past our rules
            self._fail_or_ignore(hook, 0.0, f"its selectors cannot be read: {wrong}")
            return False

        def bindings() -> ConditionBindings:
            request = self._build_review("", version, subject, old)["request"]
            return bind_variables(
                request, *(read_json(bytes(request[name])) for name in ("object", "oldObject"))
            )

        answer = evaluate_conditions(hook.webhook.match_conditions, bindings)
        if not isinstance(answer, InvalidAdmissionResponse):
            return answer
        self._fail_or_ignore(hook, 0.0, answer.reason)
        return False

    async def _call_mutating(
        self, matched: MatchedWebhook, subject: ReviewObject | None, old: StoredReviewObject | None
    ) -> ReviewObject | None:
        """What one webhook makes of an object: the very same when it changes nothing."""
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
        self.observer.on_failure(hook, f"its patch cannot be used: {why}")
        raise new_internal_error(f'admission webhook "{name}" sent a patch that cannot be used: {why}')

    # --- asking one ---

    async def _call_webhook(
        self, matched: MatchedWebhook, subject: ReviewObject | None, old: StoredReviewObject | None
    ) -> AdmissionResponse | None:
        """What a webhook says; None when it could not be asked and may be passed over."""
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
        self.observer.on_call(hook, operation, took, "allowed" if ruling.allowed else "denied")
        if ruling.annotations:
            marks = {f"{hook.name}/{key}": value for key, value in ruling.annotations.items()}
            self.observer.on_annotations(self.audit_id, marks)
        if not ruling.allowed:
            raise self._attach_warnings(
                ApiStatusError(ruling.code, ruling.reason, format_denial(hook.name, ruling))
            )
        return ruling

    def _fail_or_ignore(self, hook: ActiveWebhook, seconds: float, why: str) -> None:
        """Refuse the request, or go on without a webhook, as its configuration says."""
        operation = self.review.target.operation
        self.observer.on_call(hook, operation, seconds, "ignored" if hook.ignores_failure else "failed")
        self.observer.on_failure(hook, why)
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
        """A refusal, with the warnings so far: they may be about what is refused."""
        failure.headers = (*failure.headers, *build_warning_headers(self.warnings))
        return failure
