"""Who is let in, who waits, who is turned away, and in which order."""

from __future__ import annotations

import asyncio

import pytest

from dray.clock import ManualClock
from dray.server.http.errors import ApiStatusError
from dray.server.http.flow_control import PRIORITY_LEVELS, FlowController, get_priority_rank
from dray.server.http.limits import ServerLimits
from dray.server.http.requests import ANONYMOUS_USER, MASTERS, NODES, ApiCall, RequestUser

JANE, JOHN = RequestUser("jane"), RequestUser("john")
NODE, ADMIN = RequestUser("system:node:a", (NODES,)), RequestUser("admin", (MASTERS,))
SCHEDULER = RequestUser("system:kube-scheduler")
READ = ApiCall("get", "/x", plural="pods")
WRITE = ApiCall("create", "/x", plural="pods")
LEASE = ApiCall("update", "/x", plural="leases", group="coordination.k8s.io")
WATCH = ApiCall("watch", "/x", version="v1", plural="pods")


class Room:
    """A gate, and those who went through it."""

    def __init__(self, **limits) -> None:
        self.refusals: list[str] = []
        self.clock = ManualClock()
        self.gate = FlowController(ServerLimits(**limits), self.clock, self.refusals.append)
        self.inside: list[str] = []
        self.stay = asyncio.Event()

    async def visit(self, name: str, call: ApiCall = READ, user: RequestUser = JANE) -> None:
        async with self.gate.acquire(call, user):
            self.inside.append(name)
            await self.stay.wait()
            await asyncio.sleep(0)

    def start(self, name: str, call: ApiCall = READ, user: RequestUser = JANE) -> asyncio.Task[None]:
        return asyncio.create_task(self.visit(name, call, user))


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def run(test) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test()

    asyncio.run(bounded())


@pytest.mark.parametrize(
    ("call", "user", "name"),
    [
        (LEASE, JANE, "leases"),
        (LEASE, ANONYMOUS_USER, "anonymous"),
        (READ, NODE, "system"),
        (READ, ADMIN, "system"),
        (WRITE, SCHEDULER, "system"),
        (READ, JANE, "others"),
        (READ, RequestUser("system:serviceaccount:kube-system:x"), "others"),
        (READ, ANONYMOUS_USER, "anonymous"),
    ],
)
def test_every_request_has_a_class(call, user, name):
    assert PRIORITY_LEVELS[get_priority_rank(call, user)].name == name


def test_whoever_finds_no_place_waits_until_somebody_goes():
    async def test():
        room = Room(max_in_flight=4)
        tasks = [room.start(str(number)) for number in range(5)]
        await settled()
        assert room.inside == ["0", "1", "2"]
        assert room.gate.queued == 2
        room.stay.set()
        await asyncio.gather(*tasks)
        assert room.inside == ["0", "1", "2", "3", "4"]
        assert (room.gate.queued, room.gate.in_flight) == (0, {"readOnly": 0, "mutating": 0})

    run(test)


def test_the_last_places_are_for_those_above():
    async def test():
        room = Room(max_in_flight=20)
        tasks = [room.start("other") for _ in range(30)]
        tasks += [room.start("anonymous", user=ANONYMOUS_USER) for _ in range(3)]
        tasks += [room.start("node", user=NODE) for _ in range(10)]
        tasks += [room.start("lease", LEASE) for _ in range(10)]
        await settled()
        assert sorted(room.inside) == ["lease"] + ["node"] * 4 + ["other"] * 15
        room.stay.set()
        await asyncio.gather(*tasks)

    run(test)


def test_places_that_come_free_go_to_the_highest_class_first():
    async def test():
        room = Room(max_in_flight=1)
        first = room.start("first")
        await settled()
        later = [
            room.start("anonymous", user=ANONYMOUS_USER),
            room.start("other"),
            room.start("node", user=NODE),
            room.start("lease", LEASE),
        ]
        await settled()
        room.stay.set()
        await asyncio.gather(first, *later)
        assert room.inside == ["first", "lease", "node", "other", "anonymous"]

    run(test)


def test_in_a_queue_users_take_turns():
    async def test():
        room = Room(max_in_flight=1)
        tasks = [room.start("first")]
        await settled()
        tasks += [room.start(f"jane-{number}") for number in range(50)]
        await settled()
        tasks.append(room.start("john", user=JOHN))
        await settled()
        room.stay.set()
        await asyncio.gather(*tasks)
        assert room.inside.index("john") <= 2

    run(test)


def test_no_place_in_time_is_a_429_that_says_when_to_come_back():
    async def test():
        room = Room(max_in_flight=1, queue_seconds=0.01)
        first = room.start("first")
        await settled()
        with pytest.raises(ApiStatusError, match="no free slot in") as busy:
            await room.visit("late")
        assert busy.value.code == 429
        assert ("retry-after", "1") in busy.value.headers
        room.stay.set()
        await first
        await room.visit("later")
        assert room.inside == ["first", "later"]
        assert room.refusals == ["queue_seconds"]

    run(test)


def test_a_client_that_leaves_while_it_waits_leaves_no_trace():
    async def test():
        room = Room(max_in_flight=1)
        first, second, third = (room.start(str(number)) for number in range(3))
        await settled()
        second.cancel()
        await settled()
        assert room.gate.queued == 1
        room.stay.set()
        await asyncio.gather(first, third)
        assert room.inside == ["0", "2"]
        await room.visit("again")

    run(test)


def test_a_place_given_to_somebody_who_just_left_goes_to_the_next():
    async def test():
        room = Room(max_in_flight=1)
        first, second, third = (room.start(str(number)) for number in range(3))
        await settled()
        room.stay.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(first, second, third, return_exceptions=True)
        assert room.inside[-1] == "2"
        assert room.gate.in_flight == {"readOnly": 0, "mutating": 0}
        await room.visit("again")

    run(test)


@pytest.mark.parametrize(
    ("limits", "limit"),
    [({"max_queued": 3}, "max_queued"), ({"max_queued_per_user": 3}, "max_queued_per_user")],
)
def test_a_full_queue_turns_away_at_once(limits, limit):
    async def test():
        room = Room(max_in_flight=1, **limits)
        tasks = [room.start(str(number)) for number in range(4)]
        await settled()
        with pytest.raises(ApiStatusError) as full:
            await room.visit("too many")
        assert full.value.code == 429
        assert room.refusals == [limit]
        room.stay.set()
        await asyncio.gather(*tasks)

    run(test)


def test_health_checks_pass_a_full_house():
    async def test():
        room = Room(max_in_flight=1, max_queued=0)
        first = room.start("first", user=ADMIN)
        await settled()
        room.stay.set()
        await room.visit("health", ApiCall("get", "/readyz"), ANONYMOUS_USER)
        assert room.inside == ["first", "health"]
        await first

    run(test)


def test_watches_are_counted_by_user_and_kind_and_take_no_place():
    async def test():
        room = Room(max_in_flight=1, max_watches=3, max_watches_per_user=2)
        tasks = [room.start("w", WATCH), room.start("w", WATCH)]
        await settled()
        with pytest.raises(ApiStatusError, match="`jane` has 2 watches open"):
            await room.visit("w", WATCH)
        tasks.append(room.start("w", WATCH, JOHN))
        await settled()
        with pytest.raises(ApiStatusError, match="3 watches are open"):
            await room.visit("w", WATCH, NODE)
        assert room.gate.watches == {("", "v1", "pods"): 3}
        room.stay.set()
        await asyncio.gather(*tasks)
        await room.visit("request")
        assert room.gate.watches == {}
        assert room.refusals == ["max_watches_per_user", "max_watches"]

    run(test)


def test_the_rate_of_one_user_is_no_concern_of_another():
    async def test():
        room = Room(requests_per_second=10)
        room.stay.set()
        for _ in range(20):
            await room.visit("jane")
        with pytest.raises(ApiStatusError, match="more than 10 requests per second of `jane`"):
            await room.visit("jane")
        await room.visit("john", user=JOHN)
        room.clock.advance(0.1)
        await room.visit("jane")
        with pytest.raises(ApiStatusError):
            await room.visit("jane")

    run(test)


def test_no_more_users_are_remembered_than_fit(monkeypatch):
    monkeypatch.setattr("dray.server.http.flow_control.MAX_RATE_BUCKETS", 10)

    async def test():
        room = Room(requests_per_second=1)
        room.stay.set()
        for number in range(50):
            await room.visit("x", user=RequestUser(f"user-{number}"))
        assert len(room.gate._rate_buckets) == 10

    run(test)
