"""The work on claims: reading them, asking the author, keeping the book; one at a time per claim.

Theory of operation: claims of one call are worked on at the same time and each ends by itself. Work that was
begun is finished even when whoever asked stops waiting: an author's method cannot be stopped halfway, and the
agent will ask again. To prepare, the claim is read fresh from the API; to give back, nothing is needed but
the book, so that it works when the claim or the API is gone.

Rules for this file: whatever goes wrong becomes the text of an outcome that names the driver, the claim and
the cause; nothing is raised to the agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.rest_client import TROUBLE
from dray.clock import Clock, timestamp
from dray.driver import metrics as m
from dray.driver.async_driver import Author
from dray.driver.base import Claim, ClassicClaim, Ready
from dray.driver.preparing.claim_conversion import Refused, claim_of, classic_claim_of
from dray.driver.preparing.claim_lookup import Lookup
from dray.driver.preparing.device_status import Statuses, status_document
from dray.driver.preparing.prepared_claims import Book
from dray.driver.preparing.prepared_records import Answer, Entry, Stage, entry_of
from dray.durable import Damaged, Newer
from dray.errors import DrayError
from dray.telemetry.logs import Log
from dray.telemetry.metrics import Metrics

BESIDE_SECONDS: Final = 1.0
"""How long giving back waits for what would be good to know from the API, and is not needed."""


class Ref(NamedTuple):
    """A claim as the agent names it; a classic one only by its uid."""

    uid: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.name else self.uid


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended: the devices for the reply, or an error."""

    answers: tuple[Answer, ...] = ()
    error: str = ""
    missing: bool = False
    """There is no such claim."""


class _Fresh(NamedTuple):
    """A claim as the author sees it, and the uids of those it is reserved for."""

    claim: Claim | ClassicClaim
    consumers: tuple[str, ...]
    by_pods: bool
    """Whether all of them are pods. Groups stay while their pods come and go."""


class NoClaim(Refused):
    """There is no such claim."""


@dataclass(slots=True)
class Tools:
    """What the work is done with."""

    author: Author
    client: Client
    book: Book
    statuses: Statuses
    node: str
    boot_id: str
    log: Log
    metrics: Metrics
    clock: Clock
    lookup: Lookup = field(init=False)

    def __post_init__(self) -> None:
        self.lookup = Lookup(self.client, self.author.driver.name, self.node)


class Work:
    """Prepares claims and gives them back."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._author, self._book, self._log = tools.author, tools.book, tools.log
        self._name = tools.author.driver.name
        self._tasks: set[asyncio.Task[Outcome]] = set()

    async def prepare(self, refs: Iterable[Ref]) -> Mapping[str, Outcome]:
        """Prepare claims; an outcome for each."""
        return await self._all(refs, "prepare", self._prepare)

    async def unprepare(self, refs: Iterable[Ref]) -> Mapping[str, Outcome]:
        """Give claims back; an outcome for each."""
        return await self._all(refs, "unprepare", self._unprepare)

    async def reconcile(self) -> None:
        """Give back what was prepared for claims that are gone; `TROUBLE` when the API cannot tell."""
        entries = await self._disk(self._book.entries)
        for entry in entries.values():
            if not await self._tools.lookup.is_abandoned(entry):
                continue
            self._log.warning(
                "a claim is gone: giving its devices back", driver=self._name, claim=entry.label
            )
            ref = Ref(entry.uid, entry.namespace, entry.name)
            outcome = (await self.unprepare([ref]))[entry.uid]
            if outcome.error:
                self._log.error("cannot give devices back", driver=self._name, error=outcome.error)

    async def settle(self, seconds: float) -> None:
        """Until nothing is under way, but not longer than this: what is left counts as begun."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    # --- one at a time per claim, to the end ---

    async def _all(
        self, refs: Iterable[Ref], method: str, work: Callable[[Ref], Coroutine[Any, Any, tuple[Answer, ...]]]
    ) -> Mapping[str, Outcome]:
        wanted = {ref.uid: ref for ref in refs}
        tasks = {uid: asyncio.create_task(self._one(ref, method, work)) for uid, ref in wanted.items()}
        for task in tasks.values():
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        outcomes = await asyncio.shield(asyncio.gather(*tasks.values()))
        return dict(zip(tasks, outcomes, strict=True))

    async def _one(
        self, ref: Ref, method: str, work: Callable[[Ref], Coroutine[Any, Any, tuple[Answer, ...]]]
    ) -> Outcome:
        began = self._tools.clock.monotonic()
        async with self._book.turns.of(ref.uid, partial(self._wait_for_another, ref)):
            outcome = await self._ended(ref, method, work)
        metrics, result = self._tools.metrics, "error" if outcome.error else "ok"
        metrics.count(m.CALLS, self._name, method, result)
        metrics.observe(m.CALL_SECONDS, self._tools.clock.monotonic() - began, self._name, method)
        return outcome

    def _wait_for_another(self, ref: Ref) -> None:
        self._log.info("another process of the driver is busy with a claim", driver=self._name, claim=ref)

    async def _ended(
        self, ref: Ref, method: str, work: Callable[[Ref], Coroutine[Any, Any, tuple[Answer, ...]]]
    ) -> Outcome:
        try:
            try:
                return Outcome(await work(ref))
            except (Damaged, Newer):
                await self._mend()
                return Outcome(await work(ref))
        except NoClaim as missing:
            return Outcome(error=self._told(ref, missing), missing=True)
        except DrayError as refused:
            self._log.warning(
                "a claim is refused", driver=self._name, method=method, claim=ref, error=refused
            )
            return Outcome(error=self._told(ref, refused))
        except Exception as broken:  # the author's code may raise anything
            self._log.error(
                "work on a claim failed", driver=self._name, method=method, claim=ref, error=broken
            )
            cause = f"{method} failed: {type(broken).__name__}: {broken}"
            return Outcome(error=self._told(ref, cause))

    def _told(self, ref: Ref, cause: object) -> str:
        return f"driver {self._name}: claim {ref}: {cause}"

    async def _mend(self) -> None:
        for trouble in await self._disk(self._book.awaken, self._now()):
            self._log.error("set in order", driver=self._name, path=trouble.path, what=trouble.what)

    def _now(self) -> float:
        return self._tools.clock.now().timestamp()

    async def _disk(self, call: Callable[..., Any], *arguments: Any) -> Any:
        # Not in a thread of the author's: those may all be busy for long.
        return await asyncio.to_thread(call, *arguments)

    # --- prepare ---

    async def _prepare(self, ref: Ref) -> tuple[Answer, ...]:
        entry, is_whole = await self._disk(self._book.known, ref.uid)
        if entry is not None and is_whole:
            await self._refuse_moved(entry, ref)
            return tuple(entry.answers)
        if entry is not None and entry.stage is Stage.UNPREPARING:
            await self._give_back(entry)
        claim, consumers, by_pods = await self._read(ref)
        begun = entry_of(claim, self._tools.boot_id, consumers)
        await self._disk(partial(self._book.begin, begun, self._now(), by_pods=by_pods))
        ready = await self._author.prepare(claim)
        _check(claim, ready)
        now = timestamp(self._tools.clock.now())
        statuses = [status_document(each.status, now) for each in ready]
        whole: Entry = await self._disk(self._book.finish, begun, ready, statuses)
        self._tools.statuses.tell(whole)
        return whole.answers

    async def _refuse_moved(self, entry: Entry, ref: Ref) -> None:
        """A claim that got other devices since must not be answered with those it had.

        Only if the API says so, and in time: an agent that starts again must be answered without it.
        """
        had, now = _devices_of(entry), _devices_of(entry)
        with suppress(*TROUBLE, Refused, TimeoutError):
            async with asyncio.timeout(BESIDE_SECONDS):
                claim, consumers, _ = await self._read(ref)
            now = _devices_of(entry_of(claim, entry.boot_id, consumers))
        if had != now:
            raise Refused(
                f"it is prepared here with {_listed(had)} and has {_listed(now)} now; "
                "it must be given back first"
            )

    async def _read(self, ref: Ref) -> _Fresh:
        """A claim as it is now."""
        driver, lookup = self._author.driver, self._tools.lookup
        try:
            stored = await (lookup.claim(ref.namespace, ref.name) if ref.name else lookup.classic(ref.uid))
        except TROUBLE as failed:
            raise Refused(f"cannot read it: {failed}") from None
        if stored is None:
            raise NoClaim("there is no such claim")
        if stored.metadata.uid != ref.uid:
            raise Refused(f"it has the uid {stored.metadata.uid}, not {ref.uid}: another claim of that name")
        consumers = tuple(each.uid for each in stored.status.reserved_for)
        if isinstance(stored, ResourceClaim):
            by_pods = all(each.resource == "pods" for each in stored.status.reserved_for)
            claim = claim_of(stored, self._name, self._tools.node, driver.parameters)
            return _Fresh(claim, consumers, by_pods)
        by_pods = all(each.kind == "Pod" for each in stored.status.reserved_for)
        return _Fresh(classic_claim_of(stored, self._name, driver.parameters), consumers, by_pods)

    # --- give back ---

    async def _unprepare(self, ref: Ref) -> tuple[Answer, ...]:
        entry: Entry | None = await self._disk(self._book.entry, ref.uid)
        if entry is not None:
            await self._give_back(entry if entry.name else await self._known_again(entry, ref))
        return ()

    async def _known_again(self, entry: Entry, ref: Ref) -> Entry:
        """An entry whose content was lost, with what the API still tells about the claim."""
        with suppress(DrayError):
            claim, consumers, _ = await self._read(ref)
            return entry_of(claim, entry.boot_id, consumers)
        return msgspec.structs.replace(entry, namespace=ref.namespace, name=ref.name)

    async def _give_back(self, entry: Entry) -> None:
        going: Entry = await self._disk(self._book.giving, entry)
        asking = asyncio.create_task(self._consumers(entry))
        try:
            await self._author.unprepare(going.claim(self._author.driver.parameters))
            consumers = await asking
        finally:
            asking.cancel()
        self._tools.statuses.forget(entry.uid)
        await self._disk(self._book.given, going, consumers, self._now())

    async def _consumers(self, entry: Entry) -> tuple[str, ...]:
        """Who else has it reserved by now, if the API tells in time."""
        with suppress(*TROUBLE, TimeoutError):
            async with asyncio.timeout(BESIDE_SECONDS):
                return await self._tools.lookup.consumers(entry)
        return ()


def _devices_of(entry: Entry) -> frozenset[tuple[str, str, str]]:
    return frozenset((each.pool, each.device, each.share_id) for each in entry.devices)


def _listed(devices: Iterable[tuple[str, str, str]]) -> str:
    return ", ".join(f"`{pool}/{device}`" for pool, device, _ in sorted(devices))


def _check(claim: Claim | ClassicClaim, ready: list[Ready]) -> None:
    """An author must answer for every device, once."""
    for each in ready:
        if not isinstance(each, Ready):
            raise Refused(f"`prepare` must return `Ready` values, not `{type(each).__name__}`")
    if isinstance(claim, ClassicClaim):
        return
    told = [each.got for each in ready]
    for got in claim.devices:
        count = told.count(got)
        if count != 1:
            times = "nothing" if count == 0 else f"{count} answers"
            raise Refused(f"`prepare` returned {times} for device `{got.device}` of request `{got.request}`")
    if len(told) != len(claim.devices):
        raise Refused("`prepare` returned a device that is not among those of the claim")
