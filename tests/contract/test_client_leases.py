"""Leader election and heartbeats against a real server, over both transports."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from dray.client.errors import ServerUnreachableError
from dray.client.leases import (
    LEASE_KIND,
    Heartbeat,
    HeartbeatOptions,
    LeaderElector,
    LeadershipLostError,
    LeaseTiming,
)
from dray.client.patches import MergePatch
from dray.client.rest_client import ClientOptions
from tests.contract.servers import Reach, reaching, way
from tests.unit.client.fakeapi import InstantTime

__all__ = ["way"]


class Candidate:
    """One process: a clock of its own that runs when it is told to, and an election."""

    def __init__(self, reach: Reach, name: str) -> None:
        self.time = InstantTime()
        self.client = reach.client(ClientOptions(time_source=self.time.time_source, max_attempts=1))
        self.election = LeaderElector(self.client, "leader", "kube-system", name)
        self.led = 0

    def pass_by(self, seconds: float) -> None:
        self.time.clock.advance(seconds)

    async def attempt(self) -> bool:
        return await self.election._try_acquire_or_renew(60)


async def lease(reach: Reach) -> dict:
    found = await reach.client().get(LEASE_KIND, "leader", "kube-system")
    return found["spec"]


async def test_the_first_takes_it_and_keeps_it_while_it_renews(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        ann, bob = Candidate(reach, "ann"), Candidate(reach, "bob")
        assert await ann.attempt()
        assert ann.election.is_leader
        first = await lease(reach)
        assert first["holderIdentity"] == "ann"
        assert first["leaseDurationSeconds"] == 15
        assert first["leaseTransitions"] == 0
        for _ in range(5):
            assert not await bob.attempt()
            assert bob.election.leader == "ann"
            for candidate in (ann, bob):
                candidate.pass_by(9)
            assert await ann.attempt()
        assert (await lease(reach))["acquireTime"] == first["acquireTime"]
        assert (await lease(reach))["renewTime"] > first["renewTime"]
        assert not bob.election.is_leader


async def test_a_leader_that_cannot_renew_stops_before_another_begins(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        ann, bob = Candidate(reach, "ann"), Candidate(reach, "bob")
        assert await ann.attempt()
        assert not await bob.attempt()
        when: dict[str, int] = {}
        for second in range(1, 20):
            ann.pass_by(1)
            bob.pass_by(1)
            if not ann.election.is_leader:
                when.setdefault("ann stops", second)
            if "bob begins" not in when and await bob.attempt():
                when["bob begins"] = second
        assert when == {"ann stops": 10, "bob begins": 15}
        assert (await lease(reach))["leaseTransitions"] == 1


async def test_the_clocks_of_others_do_not_count(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        ann, bob = Candidate(reach, "ann"), Candidate(reach, "bob")
        bob.pass_by(100_000)  # bob's clock is a day ahead: ann's times look long over
        assert await ann.attempt()
        assert not await bob.attempt()
        bob.pass_by(14)
        assert not await bob.attempt()
        bob.pass_by(1)
        assert await bob.attempt()
        assert not await ann.attempt()
        assert ann.election.leader == "bob"


async def test_of_two_that_try_at_once_one_wins(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        candidates = [Candidate(reach, f"c{number}") for number in range(5)]
        won = await asyncio.gather(*(candidate.attempt() for candidate in candidates))
        assert sorted(won) == [False] * 4 + [True]
        for candidate in candidates:
            await candidate.attempt()
            candidate.pass_by(16)
        won = await asyncio.gather(*(candidate.attempt() for candidate in candidates))
        assert sum(won) == 1


async def test_a_leader_that_ends_gives_the_lease_back(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        ann, bob = Candidate(reach, "ann"), Candidate(reach, "bob")
        told: list[str] = []

        async def lead() -> None:
            told.append(f"leading {ann.election.is_leader}")
            try:
                await asyncio.Event().wait()
            finally:
                held = (await lease(reach))["holderIdentity"]
                told.append(f"ending while {held} holds it")

        run = asyncio.create_task(ann.election.run(lead))
        while not told:
            await asyncio.sleep(0)
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run
        assert told == ["leading True", "ending while ann holds it"]
        assert not ann.election.is_leader
        assert not (await lease(reach)).get("holderIdentity")
        assert await bob.attempt()  # at once, without waiting


async def test_work_that_is_done_ends_the_term(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        ann = Candidate(reach, "ann")

        async def lead() -> None:
            assert ann.election.is_leader

        await ann.election.run(lead)
        assert not (await lease(reach)).get("holderIdentity")

        async def fail() -> None:
            raise ArithmeticError("while leading")

        with pytest.raises(ArithmeticError, match="while leading"):
            await ann.election.run(fail)


async def test_a_leader_without_a_server_stops(way, tmp_path, monkeypatch):
    async with reaching(way, tmp_path) as reach:
        ann = Candidate(reach, "ann")
        stopped_at: list[float] = []

        async def lead() -> None:
            async def gone(*_args, **_more):
                raise ServerUnreachableError("the server is gone")

            monkeypatch.setattr(ann.client, "patch", gone)
            monkeypatch.setattr(ann.client, "get", gone)
            try:
                await asyncio.Event().wait()
            finally:
                stopped_at.append(ann.time.clock.monotonic())

        with pytest.raises(LeadershipLostError, match="`ann` no longer leads `kube-system/leader`"):
            await ann.election.run(lead)
        assert stopped_at == [10.0]


async def test_a_leader_that_was_overthrown_stops_at_once(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        ann = Candidate(reach, "ann")

        async def lead() -> None:
            usurped = MergePatch({"spec": {"holderIdentity": "bob"}})
            await reach.client().patch(LEASE_KIND, "leader", usurped, "kube-system")
            now.append(ann.time.clock.monotonic())
            await asyncio.Event().wait()

        now: list[float] = []
        with pytest.raises(LeadershipLostError):
            await ann.election.run(lead)
        assert ann.time.clock.monotonic() - now[0] <= 4
        assert (await lease(reach))["holderIdentity"] == "bob"


def test_timings_that_would_let_two_lead_are_refused():
    for wrong in ((10, 10, 2), (15, 2, 2), (15, 10, 0)):
        with pytest.raises(ValueError, match="expected lease > renew deadline"):
            LeaseTiming(*wrong)


async def test_a_heartbeat_makes_and_renews_its_lease(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        time = InstantTime()
        client = reach.client(ClientOptions(time_source=time.time_source))
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
        node = await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
        owner["uid"] = node["metadata"]["uid"]
        heart = Heartbeat(
            client, "n", "kube-system", HeartbeatOptions("n", get_owner_reference=lambda: owner)
        )
        run = asyncio.create_task(heart.run())
        while len(time.slept) < 3:
            await asyncio.sleep(0.001)
        run.cancel()
        found = await client.get(LEASE_KIND, "n", "kube-system")
        assert found["spec"]["holderIdentity"] == "n"
        assert found["spec"]["leaseDurationSeconds"] == 40
        assert found["metadata"]["ownerReferences"] == [owner]
        assert time.slept[:3] == [10, 10, 10]


async def test_a_heartbeat_that_fails_is_repeated_sooner(way, tmp_path, monkeypatch):
    async with reaching(way, tmp_path) as reach:
        time = InstantTime()
        client = reach.client(ClientOptions(time_source=time.time_source))
        heart = Heartbeat(client, "n", "kube-system", HeartbeatOptions("n"))
        sound, broken = client.patch, 3

        async def sometimes(*args, **more):
            nonlocal broken
            broken -= 1
            if broken >= 0:
                raise ServerUnreachableError("for now")
            return await sound(*args, **more)

        monkeypatch.setattr(client, "patch", sometimes)
        run = asyncio.create_task(heart.run())
        while len(time.slept) < 4:
            await asyncio.sleep(0.001)
        run.cancel()
        assert time.slept[:3] == pytest.approx([0.15, 0.3, 0.6])
        assert time.slept[3] == 10
        assert heart.failures == 0
