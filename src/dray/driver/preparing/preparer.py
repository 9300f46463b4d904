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
from dray.client.rest_client import CALL_ERRORS
from dray.clock import Clock, format_timestamp
from dray.driver import metrics as m
from dray.driver.async_driver import AsyncDriver
from dray.driver.base import Claim, ClassicClaim, Ready
from dray.driver.preparing.claim_conversion import PrepareRefusedError, build_claim, build_classic_claim
from dray.driver.preparing.claim_lookup import DriverClaimLookup
from dray.driver.preparing.device_status import DeviceStatusWriter, build_status_document
from dray.driver.preparing.prepared_claims import PreparedClaimStore
from dray.driver.preparing.prepared_records import (
    PreparedClaimRecord,
    PreparedDeviceRecord,
    PreparedRecordStage,
    build_record,
)
from dray.durable import CorruptFileError, UnsupportedVersionError
from dray.errors import DrayError
from dray.telemetry.logs import StructuredLogger
from dray.telemetry.metrics import MetricsRegistry

OPTIONAL_READ_SECONDS: Final = 1.0
"""How long giving back waits for what would be good to know from the API, and is not needed."""


class RequestedClaim(NamedTuple):
    """A claim as the agent names it; a classic one only by its uid."""

    uid: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.name else self.uid


@dataclass(frozen=True, slots=True)
class PrepareResult:
    """How it ended: the devices for the reply, or an error."""

    devices: tuple[PreparedDeviceRecord, ...] = ()
    error: str = ""
    not_found: bool = False
    """There is no such claim."""


class _CurrentClaim(NamedTuple):
    """A claim as the author sees it, and the uids of those it is reserved for."""

    claim: Claim | ClassicClaim
    consumers: tuple[str, ...]
    reserved_by_pods: bool
    """Whether all of them are pods. Groups stay while their pods come and go."""


class ClaimNotFoundError(PrepareRefusedError):
    """There is no such claim."""


@dataclass(slots=True)
class PreparerDependencies:
    """What the work is done with."""

    async_driver: AsyncDriver
    client: Client
    store: PreparedClaimStore
    status_writer: DeviceStatusWriter
    node: str
    boot_id: str
    log: StructuredLogger
    metrics: MetricsRegistry
    clock: Clock
    lookup: DriverClaimLookup = field(init=False)

    def __post_init__(self) -> None:
        self.lookup = DriverClaimLookup(self.client, self.async_driver.driver.name, self.node)


class ClaimPreparer:
    """Prepares claims and gives them back."""

    def __init__(self, dependencies: PreparerDependencies) -> None:
        self._dependencies = dependencies
        self._async_driver, self._store, self._log = (
            dependencies.async_driver,
            dependencies.store,
            dependencies.log,
        )
        self._driver_name = dependencies.async_driver.driver.name
        self._tasks: set[asyncio.Task[PrepareResult]] = set()

    async def prepare(self, refs: Iterable[RequestedClaim]) -> Mapping[str, PrepareResult]:
        """Prepare claims; an outcome for each."""
        return await self._run_all(refs, "prepare", self._prepare)

    async def unprepare(self, refs: Iterable[RequestedClaim]) -> Mapping[str, PrepareResult]:
        """Give claims back; an outcome for each."""
        return await self._run_all(refs, "unprepare", self._unprepare)

    async def reconcile(self) -> None:
        """Give back what was prepared for claims that are gone; `CALL_ERRORS` when the API cannot tell."""
        entries = await self._run_blocking(self._store.list_records)
        for entry in entries.values():
            if not await self._dependencies.lookup.is_abandoned(entry):
                continue
            self._log.warning(
                "a claim is gone: giving its devices back", driver=self._driver_name, claim=entry.label
            )
            ref = RequestedClaim(entry.uid, entry.namespace, entry.name)
            outcome = (await self.unprepare([ref]))[entry.uid]
            if outcome.error:
                self._log.error("cannot give devices back", driver=self._driver_name, error=outcome.error)

    async def drain(self, seconds: float) -> None:
        """Until nothing is under way, but not longer than this: what is left counts as begun."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    # --- one at a time per claim, to the end ---

    async def _run_all(
        self,
        refs: Iterable[RequestedClaim],
        method: str,
        work: Callable[[RequestedClaim], Coroutine[Any, Any, tuple[PreparedDeviceRecord, ...]]],
    ) -> Mapping[str, PrepareResult]:
        wanted = {ref.uid: ref for ref in refs}
        tasks = {uid: asyncio.create_task(self._run_one(ref, method, work)) for uid, ref in wanted.items()}
        for task in tasks.values():
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        outcomes = await asyncio.shield(asyncio.gather(*tasks.values()))
        return dict(zip(tasks, outcomes, strict=True))

    async def _run_one(
        self,
        ref: RequestedClaim,
        method: str,
        work: Callable[[RequestedClaim], Coroutine[Any, Any, tuple[PreparedDeviceRecord, ...]]],
    ) -> PrepareResult:
        began = self._dependencies.clock.monotonic()
        async with self._store.claim_locks.acquire(ref.uid, partial(self._log_waiting, ref)):
            outcome = await self._run_to_result(ref, method, work)
        metrics, result = self._dependencies.metrics, "error" if outcome.error else "ok"
        metrics.count(m.CLAIM_CALLS, self._driver_name, method, result)
        metrics.observe(
            m.CLAIM_CALL_SECONDS, self._dependencies.clock.monotonic() - began, self._driver_name, method
        )
        return outcome

    def _log_waiting(self, ref: RequestedClaim) -> None:
        self._log.info(
            "another process of the driver is busy with a claim", driver=self._driver_name, claim=ref
        )

    async def _run_to_result(
        self,
        ref: RequestedClaim,
        method: str,
        work: Callable[[RequestedClaim], Coroutine[Any, Any, tuple[PreparedDeviceRecord, ...]]],
    ) -> PrepareResult:
        try:
            try:
                return PrepareResult(await work(ref))
            except (CorruptFileError, UnsupportedVersionError):
                await self._recover_store()
                return PrepareResult(await work(ref))
        except ClaimNotFoundError as missing:
            return PrepareResult(error=self._format_error(ref, missing), not_found=True)
        except DrayError as refused:
            self._log.warning(
                "a claim is refused", driver=self._driver_name, method=method, claim=ref, error=refused
            )
            return PrepareResult(error=self._format_error(ref, refused))
        except Exception as broken:  # the author's code may raise anything
            self._log.error(
                "work on a claim failed", driver=self._driver_name, method=method, claim=ref, error=broken
            )
            cause = f"{method} failed: {type(broken).__name__}: {broken}"
            return PrepareResult(error=self._format_error(ref, cause))

    def _format_error(self, ref: RequestedClaim, cause: object) -> str:
        return f"driver {self._driver_name}: claim {ref}: {cause}"

    async def _recover_store(self) -> None:
        for trouble in await self._run_blocking(self._store.recover, self._get_timestamp()):
            self._log.error("set in order", driver=self._driver_name, path=trouble.path, what=trouble.what)

    def _get_timestamp(self) -> float:
        return self._dependencies.clock.now().timestamp()

    async def _run_blocking(self, call: Callable[..., Any], *arguments: Any) -> Any:
        # Not in a thread of the author's: those may all be busy for long.
        return await asyncio.to_thread(call, *arguments)

    # --- prepare ---

    async def _prepare(self, ref: RequestedClaim) -> tuple[PreparedDeviceRecord, ...]:
        entry, is_whole = await self._run_blocking(self._store.get_record_and_state, ref.uid)
        if entry is not None and is_whole:
            await self._check_devices_unchanged(entry, ref)
            return tuple(entry.answers)
        if entry is not None and entry.stage is PreparedRecordStage.UNPREPARING:
            await self._unprepare_record(entry)
        claim, consumers, by_pods = await self._read_claim(ref)
        begun = build_record(claim, self._dependencies.boot_id, consumers)
        await self._run_blocking(
            partial(self._store.begin_prepare, begun, self._get_timestamp(), reserved_by_pods=by_pods)
        )
        ready = await self._async_driver.prepare(claim)
        _check_ready_values(claim, ready)
        now = format_timestamp(self._dependencies.clock.now())
        statuses = [build_status_document(each.status, now) for each in ready]
        whole: PreparedClaimRecord = await self._run_blocking(
            self._store.finish_prepare, begun, ready, statuses
        )
        self._dependencies.status_writer.enqueue(whole)
        return whole.answers

    async def _check_devices_unchanged(self, record: PreparedClaimRecord, ref: RequestedClaim) -> None:
        """A claim that got other devices since must not be answered with those it had.

        Only if the API says so, and in time: an agent that starts again must be answered without it.
        """
        had, now = _collect_device_keys(record), _collect_device_keys(record)
        with suppress(*CALL_ERRORS, PrepareRefusedError, TimeoutError):
            async with asyncio.timeout(OPTIONAL_READ_SECONDS):
                claim, consumers, _ = await self._read_claim(ref)
            now = _collect_device_keys(build_record(claim, record.boot_id, consumers))
        if had != now:
            raise PrepareRefusedError(
                f"it is prepared here with {_format_devices(had)} and has {_format_devices(now)} now; "
                "it must be given back first"
            )

    async def _read_claim(self, ref: RequestedClaim) -> _CurrentClaim:
        """A claim as it is now."""
        driver, lookup = self._async_driver.driver, self._dependencies.lookup
        try:
            stored = await (
                lookup.get_claim(ref.namespace, ref.name) if ref.name else lookup.get_classic_claim(ref.uid)
            )
        except CALL_ERRORS as failed:
            raise PrepareRefusedError(f"cannot read it: {failed}") from None
        if stored is None:
            raise ClaimNotFoundError("there is no such claim")
        if stored.metadata.uid != ref.uid:
            raise PrepareRefusedError(
                f"it has the uid {stored.metadata.uid}, not {ref.uid}: another claim of that name"
            )
        consumers = tuple(each.uid for each in stored.status.reserved_for)
        if isinstance(stored, ResourceClaim):
            by_pods = all(each.resource == "pods" for each in stored.status.reserved_for)
            claim = build_claim(stored, self._driver_name, self._dependencies.node, driver.parameters)
            return _CurrentClaim(claim, consumers, by_pods)
        by_pods = all(each.kind == "Pod" for each in stored.status.reserved_for)
        return _CurrentClaim(
            build_classic_claim(stored, self._driver_name, driver.parameters), consumers, by_pods
        )

    # --- give back ---

    async def _unprepare(self, ref: RequestedClaim) -> tuple[PreparedDeviceRecord, ...]:
        entry: PreparedClaimRecord | None = await self._run_blocking(self._store.get_record, ref.uid)
        if entry is not None:
            await self._unprepare_record(entry if entry.name else await self._restore_lost_record(entry, ref))
        return ()

    async def _restore_lost_record(
        self, record: PreparedClaimRecord, ref: RequestedClaim
    ) -> PreparedClaimRecord:
        """An entry whose content was lost, with what the API still tells about the claim."""
        with suppress(DrayError):
            claim, consumers, _ = await self._read_claim(ref)
            return build_record(claim, record.boot_id, consumers)
        return msgspec.structs.replace(record, namespace=ref.namespace, name=ref.name)

    async def _unprepare_record(self, record: PreparedClaimRecord) -> None:
        going: PreparedClaimRecord = await self._run_blocking(self._store.begin_unprepare, record)
        asking = asyncio.create_task(self._read_consumers(record))
        try:
            await self._async_driver.unprepare(going.to_claim(self._async_driver.driver.parameters))
            consumers = await asking
        finally:
            asking.cancel()
        self._dependencies.status_writer.forget(record.uid)
        await self._run_blocking(self._store.finish_unprepare, going, consumers, self._get_timestamp())

    async def _read_consumers(self, record: PreparedClaimRecord) -> tuple[str, ...]:
        """Who else has it reserved by now, if the API tells in time."""
        with suppress(*CALL_ERRORS, TimeoutError):
            async with asyncio.timeout(OPTIONAL_READ_SECONDS):
                return await self._dependencies.lookup.list_consumers(record)
        return ()


def _collect_device_keys(record: PreparedClaimRecord) -> frozenset[tuple[str, str, str]]:
    return frozenset((each.pool, each.device, each.share_id) for each in record.devices)


def _format_devices(devices: Iterable[tuple[str, str, str]]) -> str:
    return ", ".join(f"`{pool}/{device}`" for pool, device, _ in sorted(devices))


def _check_ready_values(claim: Claim | ClassicClaim, ready: list[Ready]) -> None:
    """An author must answer for every device, once."""
    for each in ready:
        if not isinstance(each, Ready):
            raise PrepareRefusedError(f"`prepare` must return `Ready` values, not `{type(each).__name__}`")
    if isinstance(claim, ClassicClaim):
        return
    told = [each.got for each in ready]
    for got in claim.devices:
        count = told.count(got)
        if count != 1:
            times = "nothing" if count == 0 else f"{count} answers"
            raise PrepareRefusedError(
                f"`prepare` returned {times} for device `{got.device}` of request `{got.request}`"
            )
    if len(told) != len(claim.devices):
        raise PrepareRefusedError("`prepare` returned a device that is not among those of the claim")
