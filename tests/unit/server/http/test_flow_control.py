"""Flow control: which requests run, wait or are refused, and in which order."""

from __future__ import annotations

import asyncio

import pytest

from dray.clock import ManualClock
from dray.server.http.errors import ApiStatusError
from dray.server.http.flow_control import PRIORITY_LEVELS, FlowController, get_priority_rank
from dray.server.http.limits import ServerLimits
from dray.server.http.requests import ANONYMOUS_USER, MASTERS, NODES, REVIEW_KINDS, ApiCall, RequestUser

JANE, JOHN = RequestUser("jane"), RequestUser("john")
NODE, ADMIN = RequestUser("system:node:a", (NODES,)), RequestUser("admin", (MASTERS,))
SCHEDULER = RequestUser("system:kube-scheduler")
READ = ApiCall("get", "/x", plural="pods")
WRITE = ApiCall("create", "/x", version="v1", plural="pods")
LEASE = ApiCall("update", "/x", plural="leases", group="coordination.k8s.io")
WATCH = ApiCall("watch", "/x", version="v1", plural="pods")


class LimitedRequests:
    """A flow controller, and the names of the requests that it executed."""

    def __init__(self, **limits) -> None:
        self.refusals: list[str] = []
        self.clock = ManualClock()
        self.controller = FlowController(ServerLimits(**limits), self.clock, self.refusals.append)
        self.executed: list[str] = []
        self.release = asyncio.Event()

    async def send(self, name: str, call: ApiCall = READ, user: RequestUser = JANE) -> None:
        async with self.controller.acquire(call, user):
            self.executed.append(name)
            await self.release.wait()
            await asyncio.sleep(0)

    def start(self, name: str, call: ApiCall = READ, user: RequestUser = JANE) -> asyncio.Task[None]:
        return asyncio.create_task(self.send(name, call, user))


async def run_ready_tasks() -> None:
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
def test_every_request_has_a_priority_level(call, user, name):
    assert PRIORITY_LEVELS[get_priority_rank(call, user)].name == name


@pytest.mark.parametrize(("group", "plural"), REVIEW_KINDS)
def test_reviews_count_as_reads(group, plural):
    review = ApiCall("create", "/x", group=group, version="v1", plural=plural)

    async def test() -> None:
        requests = LimitedRequests()
        tasks = [requests.start("review", review), requests.start("write", WRITE)]
        await run_ready_tasks()
        assert requests.controller.in_flight == {"readOnly": 1, "mutating": 1}
        requests.release.set()
        await asyncio.gather(*tasks)
        assert requests.controller.in_flight == {"readOnly": 0, "mutating": 0}

    run(test)


def test_a_request_without_a_slot_waits_until_one_is_released():
    async def test():
        requests = LimitedRequests(max_in_flight=4)
        tasks = [requests.start(str(number)) for number in range(5)]
        await run_ready_tasks()
        assert requests.executed == ["0", "1", "2"]
        assert requests.controller.queued == 2
        requests.release.set()
        await asyncio.gather(*tasks)
        assert requests.executed == ["0", "1", "2", "3", "4"]
        assert (requests.controller.queued, requests.controller.in_flight) == (
            0,
            {"readOnly": 0, "mutating": 0},
        )

    run(test)


def test_the_last_slots_are_reserved_for_higher_levels():
    async def test():
        requests = LimitedRequests(max_in_flight=20)
        tasks = [requests.start("other") for _ in range(30)]
        tasks += [requests.start("anonymous", user=ANONYMOUS_USER) for _ in range(3)]
        tasks += [requests.start("node", user=NODE) for _ in range(10)]
        tasks += [requests.start("lease", LEASE) for _ in range(10)]
        await run_ready_tasks()
        assert sorted(requests.executed) == ["lease"] + ["node"] * 4 + ["other"] * 15
        requests.release.set()
        await asyncio.gather(*tasks)

    run(test)


def test_a_released_slot_goes_to_the_highest_level_first():
    async def test():
        requests = LimitedRequests(max_in_flight=1)
        first = requests.start("first")
        await run_ready_tasks()
        later = [
            requests.start("anonymous", user=ANONYMOUS_USER),
            requests.start("other"),
            requests.start("node", user=NODE),
            requests.start("lease", LEASE),
        ]
        await run_ready_tasks()
        requests.release.set()
        await asyncio.gather(first, *later)
        assert requests.executed == ["first", "lease", "node", "other", "anonymous"]

    run(test)


def test_a_queue_serves_its_users_in_turn():
    async def test():
        requests = LimitedRequests(max_in_flight=1)
        tasks = [requests.start("first")]
        await run_ready_tasks()
        tasks += [requests.start(f"jane-{number}") for number in range(50)]
        await run_ready_tasks()
        tasks.append(requests.start("john", user=JOHN))
        await run_ready_tasks()
        requests.release.set()
        await asyncio.gather(*tasks)
        assert requests.executed.index("john") <= 2

    run(test)


def test_a_queue_timeout_is_a_429_with_retry_after():
    async def test():
        requests = LimitedRequests(max_in_flight=1, queue_seconds=0.01)
        first = requests.start("first")
        await run_ready_tasks()
        with pytest.raises(ApiStatusError, match="no free slot in") as busy:
            await requests.send("late")
        assert busy.value.code == 429
        assert ("retry-after", "1") in busy.value.headers
        requests.release.set()
        await first
        await requests.send("later")
        assert requests.executed == ["first", "later"]
        assert requests.refusals == ["queue_seconds"]

    run(test)


def test_a_cancelled_request_leaves_the_queue():
    async def test():
        requests = LimitedRequests(max_in_flight=1)
        first, second, third = (requests.start(str(number)) for number in range(3))
        await run_ready_tasks()
        second.cancel()
        await run_ready_tasks()
        assert requests.controller.queued == 1
        requests.release.set()
        await asyncio.gather(first, third)
        assert requests.executed == ["0", "2"]
        await requests.send("again")

    run(test)


def test_a_slot_granted_to_a_cancelled_request_goes_to_the_next():
    async def test():
        requests = LimitedRequests(max_in_flight=1)
        first, second, third = (requests.start(str(number)) for number in range(3))
        await run_ready_tasks()
        requests.release.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(first, second, third, return_exceptions=True)
        assert requests.executed[-1] == "2"
        assert requests.controller.in_flight == {"readOnly": 0, "mutating": 0}
        await requests.send("again")

    run(test)


@pytest.mark.parametrize(
    ("limits", "limit"),
    [({"max_queued": 3}, "max_queued"), ({"max_queued_per_user": 3}, "max_queued_per_user")],
)
def test_a_full_queue_refuses_at_once(limits, limit):
    async def test():
        requests = LimitedRequests(max_in_flight=1, **limits)
        tasks = [requests.start(str(number)) for number in range(4)]
        await run_ready_tasks()
        with pytest.raises(ApiStatusError) as full:
            await requests.send("too many")
        assert full.value.code == 429
        assert requests.refusals == [limit]
        requests.release.set()
        await asyncio.gather(*tasks)

    run(test)


def test_health_checks_need_no_slot():
    async def test():
        requests = LimitedRequests(max_in_flight=1, max_queued=0)
        first = requests.start("first", user=ADMIN)
        await run_ready_tasks()
        requests.release.set()
        await requests.send("health", ApiCall("get", "/readyz"), ANONYMOUS_USER)
        assert requests.executed == ["first", "health"]
        await first

    run(test)


def test_watches_are_counted_by_user_and_kind_and_take_no_slot():
    async def test():
        requests = LimitedRequests(max_in_flight=1, max_watches=3, max_watches_per_user=2)
        tasks = [requests.start("w", WATCH), requests.start("w", WATCH)]
        await run_ready_tasks()
        with pytest.raises(ApiStatusError, match="`jane` has 2 watches open"):
            await requests.send("w", WATCH)
        tasks.append(requests.start("w", WATCH, JOHN))
        await run_ready_tasks()
        with pytest.raises(ApiStatusError, match="3 watches are open"):
            await requests.send("w", WATCH, NODE)
        assert requests.controller.watches == {("", "v1", "pods"): 3}
        requests.release.set()
        await asyncio.gather(*tasks)
        await requests.send("request")
        assert requests.controller.watches == {}
        assert requests.refusals == ["max_watches_per_user", "max_watches"]

    run(test)


def test_the_rate_limit_is_per_user():
    async def test():
        requests = LimitedRequests(requests_per_second=10)
        requests.release.set()
        for _ in range(20):
            await requests.send("jane")
        with pytest.raises(ApiStatusError, match="more than 10 requests per second of `jane`"):
            await requests.send("jane")
        await requests.send("john", user=JOHN)
        requests.clock.advance(0.1)
        await requests.send("jane")
        with pytest.raises(ApiStatusError):
            await requests.send("jane")

    run(test)


def test_the_number_of_rate_buckets_is_bounded(monkeypatch):
    monkeypatch.setattr("dray.server.http.flow_control.MAX_RATE_BUCKETS", 10)

    async def test():
        requests = LimitedRequests(requests_per_second=1)
        requests.release.set()
        for number in range(50):
            await requests.send("x", user=RequestUser(f"user-{number}"))
        assert len(requests.controller._rate_buckets) == 10

    run(test)
