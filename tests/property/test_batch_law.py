"""The law of batches: however transactions are sent together, each caller gets what it would have got alone.

Random transactions over a few objects are submitted in random turns of the event loop. Each also creates an
object of its own, whose version tells the order in which the server has carried them out. A model carries out
those that succeeded one by one in this order: none of them may be refused there, and the model ends with the
objects of the server. A transaction that was refused must be refused by the model in the same way, for the
same write, after some of the others. A server that declines some of them writes nothing of these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from dray.client.errors import AlreadyExistsError, ApiError, NotFoundError
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch
from dray.client.transactions.object_transaction import ObjectTransaction
from dray.client.transactions.support import TransactionsUnsupported, find_refused_write
from dray.client.transport import DEFAULT_TIMEOUT_SECONDS, TransportRequest, TransportResponse
from tests.contract.documents import config
from tests.contract.intercepted_transport import InterceptedTransport
from tests.effort import effort
from tests.support.no_transactions import is_transaction
from tests.unit.client.transactions.batching import CONFIG, Batching, opening_batches

SECRET = get_kind("Secret")
NAMES = ("a", "b", "c")
MAX_REQUESTS_PER_TRANSACTION = 3


class Step(NamedTuple):
    """One write: create, change or delete."""

    verb: str
    name: str


class Plan(NamedTuple):
    """One transaction, and the turn of the event loop in which it is submitted."""

    steps: tuple[Step, ...]
    declined: bool
    turn: int


STEPS = st.builds(Step, st.sampled_from(("create", "change", "delete")), st.sampled_from(NAMES))
PLANS = st.lists(
    st.builds(
        Plan,
        st.lists(STEPS, max_size=3, unique_by=lambda step: step.name).map(tuple),
        st.sampled_from((False, False, False, True)),
        st.integers(0, 8),
    ),
    min_size=1,
    max_size=10,
)

_DECLINED = (
    b'{"kind":"Status","status":"Failure","reason":"NotImplemented","code":501,"message":"reviewed",'
    b'"details":{"causes":[{"reason":"TransactionRequestFailed","field":"spec.requests[%d]"}]}}'
)


class DecliningTransport(InterceptedTransport):
    """Declines transactions with secrets, as a server does whose webhooks review them."""

    async def request(
        self, request: TransportRequest, *, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> TransportResponse:
        before, found, _ = request.body.partition(b"/secrets")
        if is_transaction(request) and found:
            self.asked.append(request)
            await asyncio.sleep(0)
            return TransportResponse(501, {}, _DECLINED % (before.count(b'"path"') - 1))
        return await super().request(request, timeout=timeout)


def build(number: int, plan: Plan) -> ObjectTransaction:
    transaction = ObjectTransaction()
    for verb, name in plan.steps:
        if verb == "create":
            transaction.create(config(name) | {"data": {"by": str(number)}})
        elif verb == "change":
            transaction.patch(CONFIG, name, MergePatch({"data": {"by": str(number)}}), "default")
        else:
            transaction.delete(CONFIG, name, "default")
    if plan.declined:
        metadata = {"name": f"own-{number}", "namespace": "default"}
        transaction.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    return transaction.create(config(f"own-{number}"))


async def submit_all(batching: Batching, plans: Sequence[Plan]) -> list[Any]:
    async def submit(number: int, plan: Plan) -> Any:
        for _ in range(plan.turn):
            await asyncio.sleep(0)
        return await batching.client.transactions.commit(build(number, plan))

    return await asyncio.gather(
        *(submit(number, plan) for number, plan in enumerate(plans)), return_exceptions=True
    )


def carry_out(state: dict[str, str], number: int, plan: Plan) -> tuple[int, type[ApiError]] | None:
    """Carry out a transaction in the model; what refuses it, or None."""
    proposed = dict(state)
    for position, (verb, name) in enumerate(plan.steps):
        if (verb == "create") == (name in proposed):
            return position, AlreadyExistsError if verb == "create" else NotFoundError
        proposed[name] = str(number)
        if verb == "delete":
            del proposed[name]
    state.clear()
    state.update(proposed)
    return None


def check_results(plans: Sequence[Plan], results: Sequence[Any]) -> dict[str, str]:
    """Check the results, and return the objects that the model has in the end."""
    carried_out = {number: each for number, each in enumerate(results) if isinstance(each, tuple)}
    order = sorted(
        carried_out, key=lambda number: int(carried_out[number][-1]["metadata"]["resourceVersion"])
    )
    state: dict[str, str] = {}
    states = [dict(state)]
    for number in order:
        assert carry_out(state, number, plans[number]) is None
        assert not plans[number].declined
        assert [each["metadata"]["name"] for each in results[number]] == [
            *(step.name for step in plans[number].steps),
            f"own-{number}",
        ]
        states.append(dict(state))
    for number, result in enumerate(results):
        if plans[number].declined:
            assert isinstance(result, TransactionsUnsupported)
        elif not isinstance(result, tuple):
            assert isinstance(result, ApiError), result
            refusals = [carry_out(dict(each), number, plans[number]) for each in states]
            assert (find_refused_write(result), type(result)) in refusals
            count = len(plans[number].steps) + 1
            assert count == 1 or f" of {count} (" in result.message
    return state


async def check_law(plans: Sequence[Plan]) -> None:
    async with opening_batches(DecliningTransport) as batching:
        before = {each["metadata"]["name"] for each in (await batching.client.list(CONFIG)).items}
        batching.take_writes()
        results = await submit_all(batching, plans)
        state = check_results(plans, results)
        found = {
            each["metadata"]["name"]: each["data"].get("by", "")
            for each in (await batching.client.list(CONFIG, "default")).items
            if each["metadata"]["name"] not in before
        }
        own = {f"own-{number}" for number, each in enumerate(results) if isinstance(each, tuple)}
        assert found == state | dict.fromkeys(own, "")
        assert not (await batching.client.list(SECRET, "default")).items
        assert len(batching.take_writes()) <= MAX_REQUESTS_PER_TRANSACTION * len(plans)


@given(PLANS)
@effort(1)
def test_every_caller_gets_what_it_would_have_got_alone(plans: list[Plan]) -> None:
    asyncio.run(check_law(plans))
