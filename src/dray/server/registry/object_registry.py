"""The one way into the store: read, decide, judge, and commit all of it or nothing.

Theory of operation: a write is a function from what is stored to what should be. It is called on the object
as it stands, its answer goes past every rule, and what comes out is one transaction: the object, what the
rules keep in step with it, and a compare for everything that was relied on. When a compare fails, somebody
was faster: the cache catches up and everything is decided again, until it holds or somebody says no.

Where webhooks are in force, a decision that is theirs to judge comes as a `Proposal`. Those that may change
it see it first; what comes out is settled as always, and the others see the result. What was admitted holds
for the object as it was read: when another one was faster there, they are asked anew, and when it was
elsewhere (a quota, a row of the ledger), the same result is tried again. Nobody else waits meanwhile: who
asks webhooks takes no turn.

Rules for this file: it knows no kind and no verb; nothing is stored past it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

import msgspec

from dray.api.kinds import Kind
from dray.server.admission.change import CREATE, DELETE, UPDATE, Change, Rule
from dray.server.admission.webhooks.review_objects import Proposed, Stored, Subject
from dray.server.http.errors import conflict, too_large, unavailable
from dray.server.http.limits import Limits
from dray.server.http.requests import Request
from dray.server.objects.pending_object import Draft
from dray.server.objects.stored_object import Held, gone, keeper, key
from dray.server.watch.cache import Cache
from dray.store import Absent, Committed, Compare, Conflict, Delete, Put, Store, Unchanged, Write
from dray.store.errors import OutcomeUnknown, StoreError, TooLarge

ATTEMPTS: Final = 200
"""So many times somebody else may be faster before we give up; each time, somebody made progress."""

PATIENT: Final = 3
"""After so many attempts, writers of one key wait for each other."""


class Keep(msgspec.Struct, frozen=True):
    """Store this."""

    draft: Draft


class Same(msgspec.Struct, frozen=True):
    """Leave it as it is."""


class Remove(msgspec.Struct, frozen=True):
    """Delete it; `draft` is how it would be if it stayed, when an update is what lets it go."""

    draft: Draft | None = None


Wanted = Keep | Same | Remove


class Proposal(msgspec.Struct, frozen=True):
    """What a client wants stored, before anybody has judged it."""

    draft: Draft
    complete: Callable[[Draft], Draft]
    """Fills in what webhooks may rely on."""
    settle: Callable[[Draft], Wanted]
    """Judges it, as it was proposed or as webhooks changed it."""


Decide = Callable[[Held | None], Wanted | Proposal]


class Visit(Protocol):
    """Webhooks that are asked about one write."""

    warnings: list[str]
    deadline: float

    async def mutated(self, subject: Subject | None, old: Stored | None) -> Subject | None: ...

    async def validated(self, subject: Subject | None, old: Stored | None) -> None: ...


class Admission(Protocol):
    """The webhooks in force."""

    @property
    def hooks(self) -> Sequence[object]: ...

    def visit(
        self, request: Request, kind: Kind, place: tuple[str, str], old: Held | None, deadline: float = 0.0
    ) -> Visit | None: ...

    async def errand(
        self, request: Request, kind: Kind, about: tuple[str, str, str], body: dict[str, Any]
    ) -> dict[str, Any]: ...


class _Nobody:
    """No webhooks."""

    hooks: Sequence[object] = ()

    def visit(
        self, request: Request, kind: Kind, place: tuple[str, str], old: Held | None, deadline: float = 0.0
    ) -> Visit | None:
        return None

    async def errand(
        self, request: Request, kind: Kind, about: tuple[str, str, str], body: dict[str, Any]
    ) -> dict[str, Any]:
        return body


Noted = Callable[[bool, float], None]
"""Told of every transaction: whether it was committed, and how many seconds that took."""


class Written(msgspec.Struct, frozen=True):
    """How an object stands after a write: `gone` when it was deleted, `held` is its last state then."""

    held: Held
    created: bool = False
    gone: bool = False
    warnings: tuple[str, ...] = ()


class _Admitted(msgspec.Struct, frozen=True):
    """What webhooks admitted, of the object at a revision."""

    hooks: Sequence[object]
    revision: int
    wanted: Wanted


class _Work(msgspec.Struct):
    """One write, however often it is tried."""

    request: Request
    kind: Kind
    kept: Kind
    named: tuple[str, str]
    place: bytes
    decide: Decide
    visit: Visit | None = None
    admitted: _Admitted | None = None
    waiting: bool = False
    """Whether others wait for it to end."""


class _Turn:
    """Where those who write one key wait for each other, while there are any."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class Registry:
    """Reads from the cache, writes through the rules into the store."""

    def __init__(
        self,
        store: Store,
        cache: Cache,
        rules: Sequence[Rule],
        noted: Noted = lambda _committed, _seconds: None,
        object_bytes: int = Limits().max_object_bytes,
        inside: Callable[[Change], None] = lambda _change: None,
    ) -> None:
        """`inside` is told of every change that no client asked for, before it is made."""
        self._store = store
        self.cache = cache
        self._rules = tuple(rules)
        self._noted = noted
        self._object_bytes = object_bytes
        self._inside = inside
        self._turns: dict[bytes, _Turn] = {}
        self.admission: Admission = _Nobody()
        """Who is asked besides the rules; set once, when the server is put together."""

    async def write(self, request: Request, kind: Kind, namespace: str, name: str, decide: Decide) -> Written:
        """Bring one object to what `decide` wants; raises the `Failure` of whoever objects."""
        place = key(kind, namespace, name)
        work = _Work(request, kind, keeper(kind), (namespace, name), place, decide)
        contended = place
        for attempt in range(ATTEMPTS):
            work.waiting = attempt >= PATIENT and work.visit is None
            if not work.waiting:
                outcome = await self._attempt(work)
            else:
                async with self._turn(contended):
                    outcome = await self._attempt(work)
            if isinstance(outcome, Written):
                return outcome
            if outcome is not None:
                contended = outcome.failed[0].compare.key if outcome.failed else place
                await self._followed(self.cache.reached(outcome.revision))
        raise conflict(kind, name, "too many others write at the same time; try again")

    async def _attempt(self, work: _Work) -> Written | Conflict | None:
        """Decide and commit; None when webhooks are to be asked first, while nobody waits."""
        await self._followed(self.cache.caught_up())
        old = self.cache.at(work.place)
        wanted: Wanted | Proposal | None
        if self.admission.hooks and work.request.audit_id:
            wanted = await self._admitted(work, old)
            if wanted is None:
                return None
        else:
            wanted = work.decide(old)
            if isinstance(wanted, Proposal):
                wanted = wanted.settle(wanted.draft)
        if isinstance(wanted, Same):
            assert old is not None
            outcome: Written | Conflict = Written(old)
        else:
            change = _change(work.request, work.kept, work.named, old, wanted)
            outcome = await self._commit(change, work.place)
        if work.visit is not None and work.visit.warnings and isinstance(outcome, Written):
            told = (*outcome.warnings, *work.visit.warnings)
            return msgspec.structs.replace(outcome, warnings=told)
        return outcome

    async def _admitted(self, work: _Work, old: Held | None) -> Wanted | None:
        """What is wanted, when webhooks have had their say; None when they cannot be asked now."""
        hooks, revision = self.admission.hooks, 0 if old is None else old.revision
        known = work.admitted
        if known is not None and known.hooks is hooks and known.revision == revision:
            return known.wanted
        wanted = work.decide(old)
        proposed = isinstance(wanted, Proposal)
        visit = None
        if proposed or work.request.call.verb == "delete":
            deadline = 0.0 if work.visit is None else work.visit.deadline
            visit = self.admission.visit(work.request, work.kind, work.named, old, deadline)
        if visit is None:
            return wanted.settle(wanted.draft) if isinstance(wanted, Proposal) else wanted
        work.visit = visit
        if work.waiting:
            return None
        stored = None if old is None else Stored(work.kind, old)
        if isinstance(wanted, Proposal):
            subject = Proposed(work.kind, wanted.complete(wanted.draft), wanted.complete)
            changed = await visit.mutated(subject, stored)
            # Who changed nothing leaves what was proposed as it came.
            unchanged = changed is subject or not isinstance(changed, Proposed)
            wanted = wanted.settle(wanted.draft if unchanged else changed.draft)  # type: ignore[union-attr]
        else:
            await visit.mutated(None, stored)
        await visit.validated(_subject(work.kind, wanted, old) if proposed else None, stored)
        work.admitted = _Admitted(hooks, revision, wanted)
        return wanted

    async def _commit(self, change: Change, place: bytes) -> Written | Conflict:
        old = change.old
        compares: list[Compare] = [Absent(place) if old is None else Unchanged(place, old.revision)]
        writes: list[Write] = []
        warnings: list[str] = []
        for rule in self._rules:
            extra = rule.judge(change)
            compares += extra.compares
            writes += extra.writes
            warnings += extra.warnings
        draft = change.draft
        value = b"" if draft is None else draft.stored
        if len(value) > self._object_bytes:
            raise too_large(f"the object has {len(value)} bytes; at most {self._object_bytes} are stored")
        if old is not None and old.value == value and not writes:
            return Written(old, warnings=tuple(warnings))
        writes.append(Delete(place) if draft is None else Put(place, value))
        if change.request.call.dry_run:
            return _written(change, place, value, old.revision if old else 0, warnings)
        if not change.request.audit_id:
            self._inside(change)
        outcome = await self._txn(compares, writes)
        if isinstance(outcome, Conflict):
            return outcome
        return _written(change, place, value, outcome.revision, warnings)

    async def _txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Committed | Conflict:
        begun = time.perf_counter()
        try:
            outcome = await self._store.txn(_distinct(compares), writes)
        except TooLarge as too_much:
            raise too_large(f"the store cannot take this in one transaction: {too_much}") from None
        except OutcomeUnknown as unknown:
            why = f"whether this was stored is not known: {unknown}; read before you try again"
            raise unavailable(why) from None
        except StoreError as broken:
            raise unavailable(f"the store cannot write now: {broken}") from None
        self._noted(isinstance(outcome, Committed), time.perf_counter() - begun)
        return outcome

    @staticmethod
    async def _followed(cache: Awaitable[object]) -> None:
        """Wait for the cache; one that does not follow is a failure like others."""
        try:
            await cache
        except StoreError as broken:
            raise unavailable(f"the store does not answer: {broken}") from None

    @asynccontextmanager
    async def _turn(self, place: bytes) -> AsyncIterator[None]:
        """After a few lost races, one after the other: that is faster than to lose again.

        Those wait for each other who lost over the same key, be it an object, a row of the ledger or a quota.
        """
        turn = self._turns.setdefault(place, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[place]


def _subject(kind: Kind, wanted: Wanted, old: Held | None) -> Proposed:
    """The object as it would be stored."""
    draft = None if isinstance(wanted, Same) else wanted.draft
    if draft is None:
        assert old is not None
        draft = Draft.of_held(old)
    return Proposed(kind, draft)


def _change(
    request: Request, kind: Kind, named: tuple[str, str], old: Held | None, wanted: Keep | Remove
) -> Change:
    namespace, name = named
    if isinstance(wanted, Remove):
        return Change(request, DELETE, kind, namespace, name, old, None)
    operation = CREATE if old is None else UPDATE
    return Change(request, operation, kind, namespace, name, old, wanted.draft)


def _written(change: Change, place: bytes, value: bytes, revision: int, warnings: Sequence[str]) -> Written:
    if change.draft is None:
        assert change.old is not None
        last = gone(change.old, revision)
        return Written(last, gone=True, warnings=tuple(warnings))
    held = Held(change.kind, place, value, revision)
    if revision:
        change.draft.teach(held)
    return Written(held, created=change.old is None, warnings=tuple(warnings))


def _distinct(compares: Sequence[Compare]) -> list[Compare]:
    """Rules may rely on the same thing; the store needs to be asked once."""
    return list(dict.fromkeys(compares))
