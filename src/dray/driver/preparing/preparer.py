"""The claim preparer: prepares and unprepares claims, one call at a time per claim.

Theory of operation: the preparer works on the claims of one call concurrently, and each claim succeeds or
fails by itself. It finishes work that has begun even when the caller stops waiting: an author's method cannot
be interrupted, and the agent calls again. Work that has not begun when the caller has stopped waiting is not
begun any more. To prepare a claim, it reads the claim from the API; where it cannot be prepared yet, the call
waits (see `call_waits`). To unprepare one, it needs only the store of prepared claims, so that it works when
the claim or the API is gone.

Rules for this file: every failure becomes the error text of a result that names the driver, the claim and the
cause; nothing is raised to the agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.errors import BadRequestError, ForbiddenError, KindNotServedError
from dray.client.rest_client import CALL_ERRORS
from dray.clock import format_timestamp
from dray.driver import metrics as m
from dray.driver.async_driver import AsyncDriver
from dray.driver.base import Claim, ClassicClaim, Ready, TryAgainError
from dray.driver.preparing.call_waits import AgentCall, CallWaits
from dray.driver.preparing.claim_conversion import (
    STALE_READ_SECONDS,
    PrepareDelayedError,
    PrepareRefusedError,
    build_claim,
    build_classic_claim,
)
from dray.driver.preparing.claim_lookup import DriverClaimLookup
from dray.driver.preparing.device_status import DeviceStatusWriter, build_status_document
from dray.driver.preparing.metadata_writer import DeviceMetadataWriter
from dray.driver.preparing.prepared_claims import PreparedClaimStore
from dray.driver.preparing.prepared_records import (
    PreparedClaimRecord,
    PreparedDeviceRecord,
    PreparedRecordStage,
    build_record,
    collect_device_keys,
    format_devices,
)
from dray.durable import CorruptFileError, UnsupportedVersionError
from dray.errors import DrayError
from dray.telemetry.logs import StructuredLogger
from dray.telemetry.metrics import MetricsRegistry

OPTIONAL_READ_SECONDS: Final = 1.0
"""How long a call waits for reads from the API that it can do without."""


REQUIRED_READ_SECONDS: Final = 10.0
"""How long one attempt to prepare a claim waits for the API."""
_PERMANENT_ERRORS: Final = (BadRequestError, ForbiddenError, KindNotServedError)
"""Errors of the API that waiting does not cure."""


class RequestedClaim(NamedTuple):
    """A claim as the agent names it; a classic one only by its uid."""

    uid: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.name else self.uid


@dataclass(frozen=True, slots=True)
class PrepareResult:
    """The result of a call for one claim: the devices for the reply, or an error."""

    devices: tuple[PreparedDeviceRecord, ...] = ()
    error: str = ""
    not_found: bool = False
    """Whether the error is that the claim does not exist."""
    delay: PrepareDelayedError | None = None
    """Set while the error may pass."""


class _CurrentClaim(NamedTuple):
    """A claim as the author sees it, and the uids of the consumers that reserve it."""

    claim: Claim | ClassicClaim
    consumers: tuple[str, ...]
    reserved_by_pods: bool
    """Whether all consumers are pods. A group stays while its pods come and go."""


_ClaimWork = Callable[[RequestedClaim], Coroutine[Any, Any, PrepareResult]]
_ClaimStep = Callable[[RequestedClaim], Coroutine[Any, Any, tuple[PreparedDeviceRecord, ...]]]


class ClaimNotFoundError(PrepareDelayedError):
    """The claim does not exist."""


class ClaimPreparer:
    """Prepares and unprepares claims for the driver, on the node that the driver runs on."""

    def __init__(
        self,
        async_driver: AsyncDriver,
        client: Client,
        store: PreparedClaimStore,
        status_writer: DeviceStatusWriter,
        log: StructuredLogger,
        metrics: MetricsRegistry,
    ) -> None:
        self._async_driver, self._store, self._status_writer = async_driver, store, status_writer
        self._log, self._metrics, self._clock = log, metrics, client.options.time_source.clock
        self.waits = CallWaits()
        self._driver_name, self._node = async_driver.driver.name, async_driver.driver.node
        self.lookup = DriverClaimLookup(client, self._driver_name, self._node)
        self._tasks: set[asyncio.Task[PrepareResult]] = set()
        self.metadata_writer: DeviceMetadataWriter | None = None
        """Writes device metadata files, if the driver wants them."""

    async def prepare(
        self, refs: Iterable[RequestedClaim], remaining_seconds: float | None = None
    ) -> Mapping[str, PrepareResult]:
        """Prepare claims, and return a result for each by uid.

        `remaining_seconds` is how long the caller waits for the results, None when it waits for ever.
        """
        call = self.waits.begin_call(remaining_seconds)
        return await self._run_all(refs, call, lambda ref: self._prepare_when_possible(ref, call))

    async def unprepare(self, refs: Iterable[RequestedClaim]) -> Mapping[str, PrepareResult]:
        """Unprepare claims, and return a result for each by uid."""
        return await self._run_all(refs, AgentCall(), self._unprepare_now)

    async def drain(self, seconds: float) -> None:
        """Wait until no work is under way, at most for `seconds`; a claim that is left counts as begun."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    # --- one at a time per claim, to the end ---

    async def _run_all(
        self, refs: Iterable[RequestedClaim], call: AgentCall, work: _ClaimWork
    ) -> Mapping[str, PrepareResult]:
        wanted = {ref.uid: ref for ref in refs}
        tasks = {uid: asyncio.create_task(work(ref)) for uid, ref in wanted.items()}
        for task in tasks.values():
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            results = await asyncio.shield(asyncio.gather(*tasks.values()))
        except asyncio.CancelledError:
            call.hung_up = True
            self.waits.notify_change()
            raise
        return dict(zip(tasks, results, strict=True))

    async def _unprepare_now(self, ref: RequestedClaim) -> PrepareResult:
        started_at = self._clock.monotonic()
        async with self._acquire_claim(ref):
            result = await self._run_to_result(ref, "unprepare", self._unprepare)
        self.waits.notify_change()
        self._measure("unprepare", result, started_at)
        return result

    async def _prepare_when_possible(self, ref: RequestedClaim, call: AgentCall) -> PrepareResult:
        """Prepare a claim, and try again while it cannot be prepared yet and the caller waits."""
        started_at, last_cause = self._clock.monotonic(), ""
        while True:
            async with self._acquire_claim(ref):
                if call.hung_up:
                    result = PrepareResult(error=self._format_error(ref, "the caller has hung up"))
                    break
                result = await self._run_to_result(ref, "prepare", self._prepare)
            if result.delay is None:
                break
            if str(result.delay) != last_cause:
                last_cause = str(result.delay)
                self._log.info("a claim waits", driver=self._driver_name, claim=ref, cause=last_cause)
            if not await self.waits.wait(call, result.delay):
                waited = self._clock.monotonic() - started_at
                result = self._refuse_delayed(ref, result.delay, waited)
                break
        self._measure("prepare", result, started_at)
        return result

    def _refuse_delayed(
        self, ref: RequestedClaim, delay: PrepareDelayedError, waited: float
    ) -> PrepareResult:
        self._log.warning(
            "a claim is refused", driver=self._driver_name, method="prepare", claim=ref, error=delay
        )
        cause = f"{delay} (waited {waited:.0f} s for that)" if waited >= 1 else str(delay)
        not_found = isinstance(delay, ClaimNotFoundError)
        return PrepareResult(error=self._format_error(ref, cause), not_found=not_found)

    def _acquire_claim(self, ref: RequestedClaim) -> AbstractAsyncContextManager[None]:
        return self._store.claim_locks.acquire(ref.uid, partial(self._log_waiting, ref))

    def _measure(self, method: str, result: PrepareResult, started_at: float) -> None:
        self._metrics.count(m.CLAIM_CALLS, self._driver_name, method, "error" if result.error else "ok")
        seconds = self._clock.monotonic() - started_at
        self._metrics.observe(m.CLAIM_CALL_SECONDS, seconds, self._driver_name, method)

    def _log_waiting(self, ref: RequestedClaim) -> None:
        self._log.info(
            "another process of the driver is busy with a claim", driver=self._driver_name, claim=ref
        )

    async def _run_to_result(self, ref: RequestedClaim, method: str, work: _ClaimStep) -> PrepareResult:
        try:
            try:
                return PrepareResult(await work(ref))
            except (CorruptFileError, UnsupportedVersionError):
                await self._recover_store()
                return PrepareResult(await work(ref))
        except PrepareDelayedError as delayed:
            return PrepareResult(error=self._format_error(ref, delayed), delay=delayed)
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
        for repair in await self._run_blocking(self._store.recover, self._get_timestamp()):
            self._log.error(
                "repaired the checkpoint of prepared claims",
                driver=self._driver_name,
                path=repair.path,
                what=repair.what,
            )

    def _get_timestamp(self) -> float:
        return self._clock.now().timestamp()

    async def _run_blocking(self, call: Callable[..., Any], *arguments: Any) -> Any:
        # Not in the threads of the author's methods: those may all be busy for long.
        return await asyncio.to_thread(call, *arguments)

    # --- prepare ---

    async def _prepare(self, ref: RequestedClaim) -> tuple[PreparedDeviceRecord, ...]:
        record, is_prepared = await self._run_blocking(self._store.get_record_and_state, ref.uid)
        if record is not None and is_prepared:
            await self._check_devices_unchanged(record, ref)
            return tuple(record.answers)
        if record is not None and record.stage is PreparedRecordStage.UNPREPARING:
            await self._unprepare_record(record)
        claim, consumers, by_pods = await self._read_claim(ref)
        begun = build_record(claim, self._store.boot_id, consumers)
        await self._run_blocking(
            partial(self._store.begin_prepare, begun, self._get_timestamp(), reserved_by_pods=by_pods)
        )
        try:
            ready = await self._async_driver.prepare(claim)
        except TryAgainError as again:
            raise PrepareDelayedError(f"the driver says to try again: {again}") from None
        _check_ready_values(claim, ready)
        if isinstance(claim, Claim):
            ready = await self._add_metadata(claim, ready)
        now = format_timestamp(self._clock.now())
        statuses = [build_status_document(each.status, now) for each in ready]
        prepared: PreparedClaimRecord = await self._run_blocking(
            self._store.finish_prepare, begun, ready, statuses
        )
        self._status_writer.enqueue(prepared)
        return prepared.answers

    async def _add_metadata(self, claim: Claim, ready: list[Ready]) -> list[Ready]:
        if self.metadata_writer is not None:
            return await self.metadata_writer.add_mounts(claim, ready)
        if any(each.metadata for each in ready):
            raise PrepareRefusedError("`Ready(metadata=...)` needs a driver with `device_metadata = True`")
        return ready

    async def _check_devices_unchanged(self, record: PreparedClaimRecord, ref: RequestedClaim) -> None:
        """Refuse a claim whose allocation has other devices than those it was prepared with.

        The check is skipped when the API does not answer in time: an agent that starts again needs a reply.
        """
        had, now = collect_device_keys(record), collect_device_keys(record)
        with suppress(*CALL_ERRORS, PrepareRefusedError, TimeoutError):
            async with asyncio.timeout(OPTIONAL_READ_SECONDS):
                claim, consumers, _ = await self._read_claim(ref)
            now = collect_device_keys(build_record(claim, record.boot_id, consumers))
        if had != now:
            raise PrepareDelayedError(
                f"it is prepared here with {format_devices(had)} and has {format_devices(now)} now; "
                "it must be given back first"
            )

    async def _read_claim(self, ref: RequestedClaim) -> _CurrentClaim:
        """Read a claim from the API."""
        driver, lookup = self._async_driver.driver, self.lookup
        try:
            async with asyncio.timeout(REQUIRED_READ_SECONDS):
                stored = await (
                    lookup.get_claim(ref.namespace, ref.name)
                    if ref.name
                    else lookup.get_classic_claim(ref.uid)
                )
        except _PERMANENT_ERRORS as refused:
            raise PrepareRefusedError(f"cannot read it: {refused}") from None
        except CALL_ERRORS as failed:
            raise PrepareDelayedError(f"cannot read it: {failed}") from None
        except TimeoutError:
            cause = f"cannot read it: no answer within {REQUIRED_READ_SECONDS:.0f} s"
            raise PrepareDelayedError(cause) from None
        if stored is None:
            raise ClaimNotFoundError("there is no such claim", max_wait_seconds=STALE_READ_SECONDS)
        if stored.metadata.uid != ref.uid:
            raise PrepareDelayedError(
                f"it has the uid {stored.metadata.uid}, not {ref.uid}: another claim of that name",
                max_wait_seconds=STALE_READ_SECONDS,
            )
        consumers = tuple(each.uid for each in stored.status.reserved_for)
        if isinstance(stored, ResourceClaim):
            by_pods = all(each.resource == "pods" for each in stored.status.reserved_for)
            claim = build_claim(stored, self._driver_name, self._node, driver.parameters)
            return _CurrentClaim(claim, consumers, by_pods)
        by_pods = all(each.kind == "Pod" for each in stored.status.reserved_for)
        return _CurrentClaim(
            build_classic_claim(stored, self._driver_name, driver.parameters), consumers, by_pods
        )

    # --- unprepare ---

    async def _unprepare(self, ref: RequestedClaim) -> tuple[PreparedDeviceRecord, ...]:
        record: PreparedClaimRecord | None = await self._run_blocking(self._store.get_record, ref.uid)
        if record is not None:
            restored = record if record.name else await self._restore_lost_record(record, ref)
            await self._unprepare_record(restored)
        return ()

    async def _restore_lost_record(
        self, record: PreparedClaimRecord, ref: RequestedClaim
    ) -> PreparedClaimRecord:
        """Rebuild a record whose content was lost from what the API still has of the claim."""
        with suppress(DrayError):
            claim, consumers, _ = await self._read_claim(ref)
            return build_record(claim, record.boot_id, consumers)
        return msgspec.structs.replace(record, namespace=ref.namespace, name=ref.name)

    async def _unprepare_record(self, record: PreparedClaimRecord) -> None:
        begun: PreparedClaimRecord = await self._run_blocking(self._store.begin_unprepare, record)
        reading = asyncio.create_task(self._read_consumers(record))
        try:
            await self._async_driver.unprepare(begun.to_claim(self._async_driver.driver.parameters))
            consumers = await reading
        finally:
            reading.cancel()
        self._status_writer.forget(record.uid)
        await self._run_blocking(self._store.finish_unprepare, begun, consumers, self._get_timestamp())

    async def _read_consumers(self, record: PreparedClaimRecord) -> tuple[str, ...]:
        """Read the consumers that reserve the claim now; empty when the API does not answer in time."""
        with suppress(*CALL_ERRORS, TimeoutError):
            async with asyncio.timeout(OPTIONAL_READ_SECONDS):
                return await self.lookup.list_consumers(record)
        return ()


def _check_ready_values(claim: Claim | ClassicClaim, ready: list[Ready]) -> None:
    """Check that the author returned exactly one value for every device."""
    for each in ready:
        if not isinstance(each, Ready):
            raise PrepareRefusedError(f"`prepare` must return `Ready` values, not `{type(each).__name__}`")
    if isinstance(claim, ClassicClaim):
        return
    returned = [each.got for each in ready]
    for got in claim.devices:
        count = returned.count(got)
        if count != 1:
            times = "nothing" if count == 0 else f"{count} answers"
            raise PrepareRefusedError(
                f"`prepare` returned {times} for device `{got.device}` of request `{got.request}`"
            )
    if len(returned) != len(claim.devices):
        raise PrepareRefusedError("`prepare` returned a device that is not among those of the claim")
