"""Transactions that are submitted at the same time: in how many requests they are sent, and who gets what."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dray.api.meta import ObjectMeta
from dray.api.resource import DeviceClass
from dray.client.client import Client
from dray.client.errors import (
    AlreadyExistsError,
    ApiError,
    NotFoundError,
    NotLeaderError,
    ServerUnreachableError,
)
from dray.client.transactions import batches
from dray.client.transactions.batches import MAX_BATCH_WRITES, MAX_REFUSALS, PATIENCE_SECONDS
from dray.client.transactions.object_transaction import ObjectTransaction
from dray.client.transactions.support import TransactionsUnsupported, find_refused_write
from dray.client.transport import TransportRequest
from dray.client.transports import leader_guard
from tests.contract.documents import config
from tests.contract.hooked import CONFIG_RULE, hooked
from tests.contract.intercepted_transport import RequestGate, leave_alone
from tests.support.in_process_transport import InProcessTransport
from tests.unit.client.fakeapi import FakeApi, FakeResponse, failed
from tests.unit.client.transactions.batching import (
    CONFIG,
    Batching,
    change,
    create,
    name_objects,
    opening_batches,
)


def run_batches(work: Callable[[Batching], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opening_batches() as batching, asyncio.timeout(20):
            batching.take_writes()
            await work(batching)

    asyncio.run(main())


def test_transactions_of_one_turn_share_a_request_and_each_gets_its_own_objects() -> None:
    async def work(batching: Batching) -> None:
        results = await batching.commit_all(create("a", "b"), create("c"), create("d", "e", "f"))
        assert list(map(name_objects, results)) == [["a", "b"], ["c"], ["d", "e", "f"]]
        assert batching.take_writes() == ["POST transactions of 6"]

    run_batches(work)


def test_transactions_that_come_while_one_is_on_its_way_share_the_next_request() -> None:
    async def work(batching: Batching) -> None:
        gate = batching.transport.before = RequestGate("POST", "transactions", most=1)
        first = batching.submit(create("a", "b"))
        await gate.reached.wait()
        rest = [batching.submit(create(f"{name}1", f"{name}2")) for name in "cde"]
        await asyncio.sleep(0)
        assert batching.take_writes() == ["POST transactions of 2"]
        gate.open()
        await asyncio.gather(first, *rest)
        assert batching.take_writes() == ["POST transactions of 6"]

    run_batches(work)


def test_a_batch_has_a_bound_and_keeps_the_order() -> None:
    async def work(batching: Batching) -> None:
        count = MAX_BATCH_WRITES // 3 + 2
        await batching.commit_all(
            *(create(f"a{number}", f"b{number}", f"c{number}") for number in range(count))
        )
        most = MAX_BATCH_WRITES // 3 * 3
        assert batching.take_writes() == [f"POST transactions of {most}", "POST transactions of 6"]
        found = (await batching.client.list(CONFIG, "default")).items
        versions = {each["metadata"]["name"]: int(each["metadata"]["resourceVersion"]) for each in found}
        order = [name for name in sorted(versions, key=versions.__getitem__) if name[0] in "abc"]
        assert order == [f"{letter}{number}" for number in range(count) for letter in "abc"]

    run_batches(work)


def test_a_transaction_that_is_larger_than_a_batch_is_sent_by_itself() -> None:
    async def work(batching: Batching) -> None:
        names = [f"n{number}" for number in range(MAX_BATCH_WRITES + 1)]
        await batching.commit_all(create("a", "b"), create(*names), create("c", "d"))
        sent = [f"POST transactions of {count}" for count in (2, len(names), 2)]
        assert batching.take_writes() == sent

    run_batches(work)


def test_one_write_that_nobody_joins_is_sent_as_that_write() -> None:
    async def work(batching: Batching) -> None:
        ((made,),) = await batching.commit_all(create("a"))
        assert made["metadata"]["name"] == "a"
        assert batching.take_writes() == ["POST configmaps"]
        (refused,) = await batching.commit_all(create("a"))
        assert isinstance(refused, AlreadyExistsError)
        assert find_refused_write(refused) == 0
        (missing,) = await batching.commit_all(change("b"))
        assert isinstance(missing, NotFoundError)
        assert (find_refused_write(missing), missing.details["name"]) == (0, "b")

    run_batches(work)


def test_two_transactions_that_write_one_object_are_not_sent_together() -> None:
    async def work(batching: Batching) -> None:
        results = await batching.commit_all(create("a", "b"), change("a"), create("c"))
        assert list(map(name_objects, results)) == [["a", "b"], ["a"], ["c"]]
        assert batching.take_writes() == ["POST transactions of 2", "POST transactions of 2"]

    run_batches(work)


def test_objects_that_nobody_wants_are_not_decoded() -> None:
    async def work(batching: Batching) -> None:
        done = await batching.client.transactions.commit(create("a", "b"), wants_objects=False)
        assert done == (None, None)
        assert {"a", "b"} <= await batching.list_names()

    run_batches(work)


def test_objects_of_a_server_in_this_process_are_not_decoded_again() -> None:
    async def work(batching: Batching) -> None:
        classes = [DeviceClass(metadata=ObjectMeta(name=name)) for name in "ab"]
        transaction = ObjectTransaction().create(classes[0]).create(classes[1])
        stored = await batching.client.transactions.commit(transaction)
        assert not isinstance(stored, TransactionsUnsupported)
        for each in stored:
            assert await batching.client.get(DeviceClass, each.metadata.name) is each

    run_batches(work)


def test_a_refusal_is_that_of_its_own_transaction_and_concerns_no_other() -> None:
    async def work(batching: Batching) -> None:
        await batching.commit_all(create("taken"))
        batching.take_writes()
        first, refused, last = await batching.commit_all(create("a", "b"), create("c", "taken"), create("d"))
        assert (name_objects(first), name_objects(last)) == (["a", "b"], ["d"])
        assert isinstance(refused, AlreadyExistsError)
        assert refused.message.startswith("request 2 of 2 (create configmaps default)")
        assert find_refused_write(refused) == 1
        assert await batching.list_names() >= {"a", "b", "d"}
        assert "c" not in await batching.list_names()
        assert batching.take_writes() == [f"POST transactions of {count}" for count in (5, 3, 2)]

    run_batches(work)


def test_many_refusals_need_a_request_for_each_transaction_and_a_few() -> None:
    async def work(batching: Batching) -> None:
        await batching.commit_all(create("taken"))
        batching.take_writes()
        count = 8
        transactions = [create(f"a{number}") for number in range(count)]
        transactions += [change(f"missing{number}", f"m{number}") for number in range(count)]
        results = await batching.commit_all(*transactions)
        assert [name_objects(each) for each in results[:count]] == [[f"a{number}"] for number in range(count)]
        assert all(
            isinstance(each, NotFoundError) and each.details["name"] == f"missing{number}"
            for number, each in enumerate(results[count:])
        )
        assert len(batching.take_writes()) <= 2 * count + MAX_REFUSALS

    run_batches(work)


def test_names_that_the_server_chooses_do_not_keep_transactions_apart() -> None:
    async def work(batching: Batching) -> None:
        nameless = config("") | {"metadata": {"generateName": "x-", "namespace": "default"}}
        results = await batching.commit_all(create("b").create(nameless), create("c").create(nameless))
        assert len({name for each in results for name in name_objects(each)}) == 4
        assert batching.take_writes() == ["POST transactions of 4"]

    run_batches(work)


def test_no_response_is_the_answer_for_all_of_the_batch_and_the_next_one_is_sent() -> None:
    async def work(batching: Batching) -> None:
        async def lose(_request: TransportRequest) -> None:
            raise ServerUnreachableError("the connection broke", sent=True)

        batching.transport.after = lose
        results = await batching.commit_all(create("a", "b"), create("c"))
        assert all(isinstance(each, ServerUnreachableError) and each.sent for each in results)
        batching.transport.after = leave_alone
        assert await batching.list_names() >= {"a", "b", "c"}
        ((made,),) = await batching.commit_all(create("d"))
        assert made["metadata"]["name"] == "d"

    run_batches(work)


def test_an_error_of_the_server_is_the_answer_for_all_of_the_batch() -> None:
    api = FakeApi()
    served = {"resources": [{"name": "transactions", "verbs": ["create"]}]}
    api.answer("GET", "/apis/dray.dev/v1alpha1", FakeResponse(served))
    api.answer("POST", "/apis/dray.dev/v1alpha1/transactions", failed(503, "ServiceUnavailable", "later"))
    client = Client(InProcessTransport(api, "tester"))

    async def main() -> None:
        each = map(client.transactions.commit, (create("a", "b"), create("c"), create("d")))
        results = await asyncio.gather(*each, return_exceptions=True)
        assert [result.code for result in results if isinstance(result, ApiError)] == [503] * 3
        assert len([asked for asked in api.asked if asked.method == "POST"]) == 1

    asyncio.run(main())


@pytest.mark.parametrize("code", [403, 404, 413])
def test_when_the_batch_itself_is_refused_each_is_sent_alone(code: int) -> None:
    api = FakeApi()
    served = {"resources": [{"name": "transactions", "verbs": ["create"]}]}
    api.answer("GET", "/apis/dray.dev/v1alpha1", FakeResponse(served))
    api.answer("POST", "/apis/dray.dev/v1alpha1/transactions", failed(code, "No", "not this"))
    api.answer(
        "POST", "/api/v1/namespaces/default/configmaps", lambda asked: FakeResponse(asked.document, 201)
    )
    client = Client(InProcessTransport(api, "tester"))

    async def main() -> None:
        declined, written = await asyncio.gather(
            *map(client.transactions.commit, (create("a", "b"), create("c")))
        )
        assert isinstance(declined, TransactionsUnsupported)
        assert not isinstance(written, TransactionsUnsupported)
        assert name_objects(written) == ["c"]
        assert [asked.path.rpartition("/")[2] for asked in api.asked if asked.method == "POST"] == [
            "transactions",
            "transactions",
            "configmaps",
        ]

    asyncio.run(main())


def test_writes_that_webhooks_review_are_not_sent_with_others_any_more() -> None:
    async def main() -> None:
        async with hooked() as world, asyncio.timeout(20):
            await world.configure("validating", "v", world.entry(rules=[CONFIG_RULE]))
            batching = Batching(world.api.app)
            await batching.client.transactions.is_served()
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
            results = await batching.commit_all(create("s").create(secret), create("a"), create("b"))
            assert isinstance(results[0], TransactionsUnsupported)
            assert list(map(name_objects, results[1:])) == [["a"], ["b"]]
            batching.take_writes()
            results = await batching.commit_all(create("t").create(secret), create("c"), create("d"))
            assert isinstance(results[0], TransactionsUnsupported)
            assert batching.take_writes() == ["POST configmaps", "POST configmaps"]

    asyncio.run(main())


def test_a_caller_that_is_cancelled_before_its_batch_is_sent_is_left_out() -> None:
    async def work(batching: Batching) -> None:
        gate = batching.transport.before = RequestGate("POST", "transactions", most=1)
        first = batching.submit(create("a", "b"))
        await gate.reached.wait()
        gone, stays = batching.submit(create("gone")), batching.submit(create("c", "d"))
        await asyncio.sleep(0)
        gone.cancel()
        gate.open()
        assert name_objects(await stays) == ["c", "d"]
        await asyncio.wait([gone, first])
        assert gone.cancelled()
        assert "gone" not in await batching.list_names()
        assert batching.take_writes() == ["POST transactions of 2", "POST transactions of 2"]

    run_batches(work)


def test_a_caller_that_is_cancelled_later_does_not_harm_the_others() -> None:
    async def work(batching: Batching) -> None:
        gate = batching.transport.before = RequestGate("POST", "transactions")
        gone, stays = batching.submit(create("a", "b")), batching.submit(create("c", "d"))
        await gate.reached.wait()
        gone.cancel()
        await asyncio.wait([gone])
        assert not stays.done()
        gate.open()
        assert name_objects(await stays) == ["c", "d"]
        assert await batching.list_names() >= {"a", "b", "c", "d"}

    run_batches(work)


def test_when_all_callers_are_cancelled_the_last_one_waits_for_the_end_of_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a lease is not released while a write of its leader is on the way."""
    monkeypatch.setattr(leader_guard, "CANCEL_WAIT_SECONDS", 15.0)

    async def work(batching: Batching) -> None:
        leading = batching.client.guard_writes(lambda: True)
        await leading.transactions.is_served()
        gate = batching.transport.before = RequestGate("POST", "transactions")
        callers = [asyncio.create_task(leading.transactions.commit(create(n, f"{n}2"))) for n in "abc"]
        await gate.reached.wait()
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers, timeout=0.05)
        assert not any(caller.done() for caller in callers)
        gate.open()
        await asyncio.wait(callers)
        assert all(caller.cancelled() for caller in callers)
        assert await batching.list_names() >= {"a", "b", "c"}

    run_batches(work)


def test_a_client_that_leads_no_more_sends_no_batch() -> None:
    async def work(batching: Batching) -> None:
        leading = [True]
        client = batching.client.guard_writes(lambda: leading[0])
        await client.transactions.is_served()
        gate = batching.transport.before = RequestGate("POST", "transactions", most=1)
        first = asyncio.create_task(client.transactions.commit(create("a", "b")))
        await gate.reached.wait()
        rest = [asyncio.create_task(client.transactions.commit(create(n, f"{n}2"))) for n in "cd"]
        await asyncio.sleep(0)
        leading[0] = False
        gate.open()
        assert not isinstance(await first, TransactionsUnsupported)
        results = await asyncio.gather(*rest, return_exceptions=True)
        assert all(isinstance(each, NotLeaderError) for each in results)
        assert await batching.list_names() & {"a", "c", "d"} == {"a"}

    run_batches(work)


def test_a_request_that_takes_long_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PATIENCE_SECONDS < 1
    monkeypatch.setattr(batches, "PATIENCE_SECONDS", 0.01)

    async def work(batching: Batching) -> None:
        gate = batching.transport.before = RequestGate("POST", "configmaps", most=1)
        slow = batching.submit(create("slow"))
        await gate.reached.wait()
        results = await batching.commit_all(create("a", "b"), create("c"))
        assert list(map(name_objects, results)) == [["a", "b"], ["c"]]
        assert not slow.done()
        gate.open()
        assert name_objects(await slow) == ["slow"]

    run_batches(work)


def test_a_server_without_transactions_gets_single_writes_at_once() -> None:
    async def work(batching: Batching) -> None:
        batching.transport.transactions = False
        client = batching.client
        assert isinstance(await client.transactions.commit(create("d", "e")), TransactionsUnsupported)
        gate = batching.transport.before = RequestGate("POST", "configmaps")
        writing = [batching.submit(create(name)) for name in "abc"]
        while gate.waiting < 3:
            await asyncio.sleep(0)
        gate.open()
        assert [name_objects(await each) for each in writing] == [["a"], ["b"], ["c"]]
        assert isinstance(await client.transactions.commit(create("d", "e")), TransactionsUnsupported)
        assert batching.take_writes() == ["POST configmaps"] * 3

    run_batches(work)
