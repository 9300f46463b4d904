"""The binder: claims are written once for all waiting pods, read again after conflicts, and unreserved."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from dray.api.meta import Condition
from dray.api.resource import AllocatedDeviceStatus, AllocationResult, ResourceClaim
from dray.claims.claim_names import FINALIZER
from dray.claims.reservation import build_consumer
from dray.client.errors import ConflictError, NotFoundError, ServerTimeoutError, ServerUnreachableError
from dray.placement.scheduling_cycle import Placement
from dray.scheduler.binding.errors import DevicesNotReadyError, PodGoneOrBoundError, StalePlacementError
from dray.scheduler.binding.reservations import MAX_WRITE_ATTEMPTS
from tests.unit.placement.claim_objects import claim, having, wanting
from tests.unit.scheduler.binder_fixture import GIVEN, PROTECTED, BinderFixture, run, users


def test_devices_and_consumer_are_one_write() -> None:
    async def play() -> None:
        fixture = BinderFixture(PROTECTED)
        await fixture.bind(fixture.placed())
        (written,) = fixture.server.writes
        assert written.status.allocation == fixture.given
        assert users(written) == ["p"]
        assert fixture.server.bound == [("p", "a")]
        assert not fixture.book.has_pending_allocation(PROTECTED)

    run(play)


def test_a_claim_without_its_finalizer_gets_it_before_its_devices() -> None:
    async def play() -> None:
        fixture = BinderFixture(claim())
        await fixture.bind(fixture.placed())
        first, second = fixture.server.writes
        assert (first.metadata.finalizers, first.status.allocation) == ((FINALIZER,), None)
        assert second.metadata.finalizers == (FINALIZER,)
        assert second.status.allocation == fixture.given

    run(play)


def test_waiting_consumers_are_reserved_with_the_first_write() -> None:
    async def play() -> None:
        fixture = BinderFixture(PROTECTED)
        await asyncio.gather(*(fixture.bind(fixture.placed(f"p{number}")) for number in range(5)))
        # The first had gone when the others came; they went together.
        assert len(fixture.server.writes) == 2
        assert sorted(users(fixture.server.claims["c"])) == [f"p{number}" for number in range(5)]
        assert len(fixture.binder.reservations.locks) == 0

    run(play)


def test_a_claim_gets_no_more_consumers_than_its_limit() -> None:
    async def play() -> None:
        others = tuple(build_consumer(wanting(name=f"o{number}").pod) for number in range(255))
        held = replace(PROTECTED, status=replace(PROTECTED.status, allocation=GIVEN, reserved_for=others))
        fixture = BinderFixture(held)
        ends = await asyncio.gather(
            *(fixture.bind(fixture.placed(f"p{number}")) for number in range(2)), return_exceptions=True
        )
        assert ends[0] is None
        assert isinstance(ends[1], StalePlacementError)
        assert "has 256 consumers already" in str(ends[1])
        assert len(fixture.server.claims["c"].status.reserved_for) == 256

    run(play)


def test_a_newer_version_is_read_and_judged_again() -> None:
    async def play() -> None:
        fixture = BinderFixture(PROTECTED)
        placement = fixture.placed()
        fixture.server.put(replace(PROTECTED, metadata=replace(PROTECTED.metadata, labels={"a": "b"})))
        await fixture.bind(placement)
        assert fixture.binder.reservations.conflicts == 1
        assert fixture.server.claims["c"].metadata.labels == {"a": "b"}
        assert fixture.server.claims["c"].status.allocation == fixture.given

    run(play)


def test_a_write_with_endless_conflicts_gives_up() -> None:
    async def play() -> None:
        fixture = BinderFixture(PROTECTED)
        placement = fixture.placed()
        patch_changes = fixture.server.patch_changes

        async def busy(old: ResourceClaim, new: ResourceClaim, **more: str) -> ResourceClaim:
            fixture.server.put(fixture.server.claims["c"])
            return await patch_changes(old, new, **more)

        fixture.server.patch_changes = busy  # type: ignore[method-assign]
        with pytest.raises(StalePlacementError, match="changes faster than it can be written"):
            await fixture.bind(placement)
        assert fixture.binder.reservations.conflicts == MAX_WRITE_ATTEMPTS

    run(play)


def test_a_peer_that_gave_the_claim_devices_in_reach_is_joined() -> None:
    async def play() -> None:
        fixture = BinderFixture(PROTECTED)
        placement = fixture.placed()
        other = having(claim(), "a/d1", where="a").status.allocation
        fixture.server.put(replace(PROTECTED, status=replace(PROTECTED.status, allocation=other)))
        await fixture.bind(placement)
        assert fixture.server.claims["c"].status.allocation == other
        assert fixture.server.bound == [("p", "a")]

    run(play)


def test_a_peer_that_gave_the_claim_devices_elsewhere_wins() -> None:
    async def play() -> None:
        fixture = BinderFixture(PROTECTED)
        placement = fixture.placed()
        other = having(claim(), "b/d0", where="b").status.allocation
        fixture.server.put(replace(PROTECTED, status=replace(PROTECTED.status, allocation=other)))
        with pytest.raises(StalePlacementError, match="got its devices elsewhere, out of reach of a"):
            await fixture.bind(placement)
        assert fixture.server.claims["c"].status.allocation == other
        assert users(fixture.server.claims["c"]) == []

    run(play)


def test_what_somebody_else_reserved_is_asked_for_before_the_pod_is_bound() -> None:
    """A server that goes on from a copy may know less of the claim than we do."""

    async def play() -> None:
        reserved = replace(
            PROTECTED,
            status=replace(
                PROTECTED.status, allocation=GIVEN, reserved_for=(build_consumer(wanting(name="p").pod),)
            ),
        )
        fixture = BinderFixture(reserved)
        await fixture.bind(fixture.placed())
        assert fixture.server.bound == [("p", "a")]
        placement = fixture.placed()
        fixture.server.put(PROTECTED)
        with pytest.raises(StalePlacementError, match="has lost its devices"):
            await fixture.bind(placement)
        assert (len(fixture.server.bound), fixture.server.writes) == (1, [])

    run(play)


def test_a_refusal_of_the_current_version_is_about_devices() -> None:
    async def play() -> None:
        fixture = BinderFixture(PROTECTED)
        placement = fixture.placed()
        fixture.server.refusals = [ConflictError(409, {"message": "device d0 is held by ml/other"})]
        with pytest.raises(StalePlacementError, match="device d0 is held by ml/other"):
            await fixture.bind(placement)
        assert (fixture.server.writes, fixture.server.bound) == ([], [])

    run(play)


@pytest.mark.parametrize("again", [False, True])
def test_a_claim_that_is_deleted_ends_it(again: bool) -> None:
    async def play() -> None:
        fixture = BinderFixture(PROTECTED)
        placement = fixture.placed()
        del fixture.server.claims["c"]
        if again:  # another of that name is there already
            fixture.server.put(replace(PROTECTED, metadata=replace(PROTECTED.metadata, uid="new")))
        with pytest.raises(StalePlacementError, match="was deleted"):
            await fixture.bind(placement)
        assert fixture.book.count_pending_allocations() == 0

    run(play)


def test_what_one_claim_was_given_goes_back_when_another_fails() -> None:
    async def play() -> None:
        other = replace(claim(name="d"), metadata=replace(claim(name="d").metadata, finalizers=(FINALIZER,)))
        fixture = BinderFixture(PROTECTED, other)
        placement = fixture.placed("p", "c", "d")
        del fixture.server.claims["d"]
        with pytest.raises(StalePlacementError):
            await fixture.bind(placement)
        assert fixture.server.claims["c"].status.allocation is None
        assert users(fixture.server.claims["c"]) == []

    run(play)


def test_others_keep_what_they_share_with_one_that_fails() -> None:
    async def play() -> None:
        theirs = build_consumer(wanting(name="other").pod)
        held = replace(PROTECTED, status=replace(PROTECTED.status, allocation=GIVEN, reserved_for=(theirs,)))
        fixture = BinderFixture(held)
        placement = fixture.placed()
        await fixture.binder.bind_claims(placement)
        assert users(fixture.server.claims["c"]) == ["other", "p"]
        fixture.server.pod = placement.pending_pod.pod
        fixture.server.refusals = [ConflictError(409, {})]
        with pytest.raises(ConflictError):
            await fixture.binder.bind_pod(placement)
        assert users(fixture.server.claims["c"]) == ["other"]
        assert fixture.server.claims["c"].status.allocation == GIVEN

    run(play)


@pytest.mark.parametrize("pod", ["gone", "elsewhere", "another"])
@pytest.mark.parametrize(
    "refusal", [NotFoundError(404, {}), ConflictError(409, {}), ServerTimeoutError(504, {})]
)
def test_claims_of_a_pod_that_is_gone_or_bound_are_left_alone(pod: str, refusal: Exception) -> None:
    async def play() -> None:
        fixture = BinderFixture(PROTECTED)
        placement = fixture.placed()
        mine = placement.pending_pod.pod
        if pod == "elsewhere":
            fixture.server.pod = replace(mine, spec=replace(mine.spec, node_name="b"))
        elif pod == "another":
            fixture.server.pod = replace(mine, metadata=replace(mine.metadata, uid="new"))
        await fixture.binder.bind_claims(placement)
        fixture.server.refusals = [refusal]
        with pytest.raises(PodGoneOrBoundError):
            await fixture.binder.bind_pod(placement)
        assert users(fixture.server.claims["c"]) == ["p"]

    run(play)


def test_without_an_answer_nothing_is_taken_back_and_the_truth_is_read() -> None:
    async def play() -> None:
        fixture = BinderFixture(PROTECTED)
        placement = fixture.placed()
        fixture.server.refusals = [ServerUnreachableError("no answer")]
        with pytest.raises(ServerUnreachableError):
            await fixture.bind(placement)
        fixture.server.put(replace(PROTECTED, status=replace(PROTECTED.status, allocation=GIVEN)))
        await fixture.binder.reread_claims(placement)
        assert fixture.known().status.allocation == GIVEN
        assert not fixture.book.has_pending_allocation(PROTECTED)
        del fixture.server.claims["c"]
        await fixture.binder.reread_claims(placement)
        assert fixture.book.get("ml", "c") is None

    run(play)


# --- devices that have to become ready ---


def slow() -> AllocationResult:
    (result,) = GIVEN.devices.results
    waiting = replace(result, binding_conditions=("attached",), binding_failure_conditions=("broken",))
    return replace(GIVEN, devices=replace(GIVEN.devices, results=(waiting,)))


def saying(found: ResourceClaim, condition: str) -> ResourceClaim:
    said = Condition(type=condition, status="True", reason="Said", message="it says")
    row = AllocatedDeviceStatus(driver="gpu.example", pool="a", device="d0", conditions=(said,))
    return replace(found, status=replace(found.status, devices=(row,)))


async def waiting() -> tuple[BinderFixture, asyncio.Task[None]]:
    """A pod that waits for its device."""
    fixture, told = BinderFixture(PROTECTED), asyncio.Queue[str]()
    fixture.book.add_pending_allocation(fixture.known(), slow(), "uid-p")
    placement = Placement(wanting(fixture.known()), fixture.node_state("a"))
    task = asyncio.create_task(fixture.binder.bind_claims(placement, told.put_nowait))
    ready = asyncio.create_task(told.get())
    await asyncio.wait((ready, task), return_when=asyncio.FIRST_COMPLETED)
    assert not task.done(), task
    assert ready.result().endswith(" waits for attached")
    await fixture.server.time.advance(0)  # it sleeps now
    return fixture, task


def hear(fixture: BinderFixture, found: ResourceClaim) -> None:
    """The watch tells of a claim."""
    stored = fixture.server.put(found)
    fixture.book.update(stored)
    fixture.binder.reservations.locks.notify_changed(stored)


def test_an_allocation_is_never_written_again_for_its_timestamp() -> None:
    async def play() -> None:
        # A peer or an older release allocated it without one; the server would refuse another allocation.
        fixture = BinderFixture(replace(PROTECTED, status=replace(PROTECTED.status, allocation=GIVEN)))
        await fixture.bind(fixture.placed())
        (written,) = fixture.server.writes
        assert written.status.allocation == GIVEN

    run(play)


def test_when_devices_were_given_is_noted() -> None:
    async def play() -> None:
        fixture, task = await waiting()
        written = fixture.server.claims["c"].status.allocation
        assert written is not None
        assert written.allocation_timestamp == fixture.given.allocation_timestamp == "2026-01-01T00:00:00Z"
        hear(fixture, saying(fixture.server.claims["c"], "attached"))
        await task
        assert len(fixture.binder.reservations.locks) == 0

    run(play)


def test_a_device_that_will_not_become_ready_goes_back() -> None:
    async def play() -> None:
        fixture, task = await waiting()
        hear(fixture, saying(fixture.server.claims["c"], "broken"))
        with pytest.raises(
            DevicesNotReadyError, match=r"claim ml/c: device gpu\.example/a/d0: broken: it says"
        ):
            await task
        left = fixture.server.claims["c"].status
        assert (left.allocation, left.reserved_for, left.devices) == (None, (), ())

    run(play)


def test_waiting_for_devices_has_a_limit() -> None:
    async def play() -> None:
        fixture, task = await waiting()
        await fixture.server.time.advance(59)
        assert not task.done()
        await fixture.server.time.advance(1)
        with pytest.raises(DevicesNotReadyError, match="waits for attached for more than 60 seconds"):
            await task
        assert fixture.server.claims["c"].status.allocation is None

    run(play)


def test_a_device_that_is_taken_away_meanwhile_is_not_waited_for() -> None:
    async def play() -> None:
        fixture, task = await waiting()
        hear(fixture, PROTECTED)
        with pytest.raises(StalePlacementError, match="lost its devices while the pod waited"):
            await task

    run(play)
