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

from dray.api.admission.match_conditions import Bindings, bound, met
from dray.api.admission.matching import Labelled, takes
from dray.api.admission.reinvocation import Turns
from dray.api.admission.review import Question, Ruling, Unclear, asked, denial, ruled
from dray.api.admission.webhook_configuration import NO_EFFECTS, NONE_ON_DRY_RUN
from dray.api.json_text import read_json, write_json
from dray.server.admission.webhooks.active_webhooks import Hook, Named
from dray.server.admission.webhooks.review_objects import Stored, Subject
from dray.server.admission.webhooks.webhook_client import Caller, Trouble
from dray.server.http.errors import Failure, bad_request, internal, timed_out
from dray.server.http.responses import warning_headers
from dray.server.patch import json_patch
from dray.server.patch.errors import PatchError
from dray.values.label_selectors import LabelSelectorError

ALL_SECONDS: Final = 60.0
"""All webhooks of a request together."""
_NULL: Final = msgspec.Raw(b"null")


@dataclass(frozen=True)
class Told:
    """Who hears of what webhooks do: metrics, the log, the audit log."""

    asked: Callable[[Hook, str, float, str], None]
    """Webhook, operation, seconds, and how it ended: `allowed`, `denied`, `failed` or `ignored`."""
    troubled: Callable[[Hook, str], None]
    """A webhook that could not be asked, and why."""
    annotated: Callable[[str, Mapping[str, str]], None]
    """What webhooks want to have in the audit log, by the id of the request."""
    unreadable: Callable[[str, str], None]
    """A configuration that cannot be read, and why."""


@dataclass
class Visit:
    """Asks the webhooks that name a request."""

    caller: Caller
    told: Told
    named: Sequence[Named]
    question: Question
    """Its version is that of the request; each webhook is asked in its own."""
    namespace: Mapping[str, str] | None
    """Labels of the namespace; None outside of all."""
    new_uid: Callable[[], str]
    now: Callable[[], float]
    audit_id: str = ""
    deadline: float = 0.0
    is_namespace: bool = False
    """Whether it is about a namespace, which is selected by its own labels."""
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.deadline = self.deadline or self.now() + ALL_SECONDS

    async def mutated(self, subject: Subject | None, old: Stored | None) -> Subject | None:
        """What those make of an object that may change it; None stays None when it is deleted."""
        changing = [named for named in self.named if named[0].mutating]
        turns = Turns()
        for position, named in enumerate(changing):
            if self._takes(named, subject, old):
                after = await self._changed(named, subject, old)
                turns.asked(position, curious=named[0].is_curious, changed=after is not subject)
                subject = after
        for position in turns.due():
            if self._takes(changing[position], subject, old):
                subject = await self._changed(changing[position], subject, old)
        return subject

    async def validated(self, subject: Subject | None, old: Stored | None) -> None:
        """Ask those that only say yes or no; the first no, in their order, is told."""
        asking = [named for named in self.named if not named[0].mutating]
        asking = [named for named in asking if self._takes(named, subject, old)]
        if len(asking) == 1:
            await self._ask(asking[0], subject, old)
            return
        answers = await asyncio.gather(
            *(self._ask(named, subject, old) for named in asking), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    def _takes(self, named: Named, subject: Subject | None, old: Stored | None) -> bool:
        """Whether selectors and conditions of a webhook take the object as it is by now."""
        hook, version = named
        labels = tuple(each.labels for each in (subject, old) if each is not None)
        home = labels[0] if self.is_namespace else self.namespace
        try:
            if not takes(hook.webhook, Labelled(home, labels)):
                return False
        except LabelSelectorError as wrong:  # from a store, past our rules
            self._failed(hook, 0.0, f"its selectors cannot be read: {wrong}")
            return False

        def bindings() -> Bindings:
            request = self._asked("", version, subject, old)["request"]
            return bound(request, *(read_json(bytes(request[name])) for name in ("object", "oldObject")))

        answer = met(hook.webhook.match_conditions, bindings)
        if not isinstance(answer, Unclear):
            return answer
        self._failed(hook, 0.0, answer.why)
        return False

    async def _changed(self, named: Named, subject: Subject | None, old: Stored | None) -> Subject | None:
        """What one webhook makes of an object: the very same when it changes nothing."""
        ruling = await self._ask(named, subject, old)
        if ruling is None or not ruling.patch:
            return subject
        (hook, version), name = named, named[0].name
        if subject is None:
            raise internal(
                f'admission webhook "{name}" attempted to modify the object, '
                "which is not supported for this operation"
            )
        before = subject.document(version)
        try:
            after = json_patch.apply(before, list(ruling.patch))
            return subject if after == before else subject.replaced(version, after)
        except PatchError as wrong:
            why = wrong.message
        except Failure as wrong:
            why = wrong.message
        self.told.troubled(hook, f"its patch cannot be used: {why}")
        raise internal(f'admission webhook "{name}" sent a patch that cannot be used: {why}')

    # --- asking one ---

    async def _ask(self, named: Named, subject: Subject | None, old: Stored | None) -> Ruling | None:
        """What a webhook says; None when it could not be asked and may be passed over."""
        hook, version = named
        operation = self.question.target.operation
        if self.question.dry_run and hook.webhook.side_effects not in (NO_EFFECTS, NONE_ON_DRY_RUN):
            raise self._refused(bad_request(f'admission webhook "{hook.name}" does not support dry run'))
        began = self.now()
        seconds = min(hook.seconds, self.deadline - began)
        if seconds <= 0:
            raise self._refused(
                timed_out(f"the webhooks of this request took more than {ALL_SECONDS:g} seconds")
            )
        uid = self.new_uid()
        answer = await self.caller.call(hook, write_json(self._asked(uid, version, subject, old)), seconds)
        ruling = answer if isinstance(answer, Trouble) else ruled(answer, uid, mutating=hook.mutating)
        took = self.now() - began
        if isinstance(ruling, Trouble | Unclear):
            self._failed(hook, took, ruling.why)
            return None
        self.warnings += ruling.warnings
        self.told.asked(hook, operation, took, "allowed" if ruling.allowed else "denied")
        if ruling.annotations:
            marks = {f"{hook.name}/{key}": value for key, value in ruling.annotations.items()}
            self.told.annotated(self.audit_id, marks)
        if not ruling.allowed:
            raise self._refused(Failure(ruling.code, ruling.reason, denial(hook.name, ruling)))
        return ruling

    def _failed(self, hook: Hook, took: float, why: str) -> None:
        """Refuse the request, or go on without a webhook, as its configuration says."""
        operation = self.question.target.operation
        self.told.asked(hook, operation, took, "ignored" if hook.may_fail else "failed")
        self.told.troubled(hook, why)
        if not hook.may_fail:
            raise self._refused(internal(f'failed calling webhook "{hook.name}": {why}'))

    def _asked(self, uid: str, version: str, subject: Subject | None, old: Stored | None) -> dict[str, Any]:
        question = msgspec.structs.replace(self.question, version=version)
        new_text = _NULL if subject is None else subject.text(version)
        old_text = _NULL if old is None else old.text(version)
        return asked(question, uid, new_text, old_text)

    def _refused(self, failure: Failure) -> Failure:
        """A refusal, with the warnings so far: they may be about what is refused."""
        failure.headers = (*failure.headers, *warning_headers(self.warnings))
        return failure
