"""Responses that get lost: a pod that may run keeps what it has, and nothing is assumed twice."""

from __future__ import annotations

import pytest

from dray.client.errors import ServerTimeoutError, ServerUnreachableError
from dray.client.patches import MergePatch
from dray.client.transport import TransportRequest
from tests.contract.controlled import by_name, pod
from tests.contract.intercepted_transport import InterceptedTransport, RequestGate
from tests.contract.scheduled import (
    NODE,
    asks,
    devices_in,
    devices_of,
    exactly,
    gate_allocation,
    impatient,
    place,
)

__all__ = ["impatient"]

WAY = "inside"
LOST = [
    ServerUnreachableError("the connection broke"),
    ServerTimeoutError(504, {"message": "it took too long"}),
]


def lose(transport: InterceptedTransport, write: str, failure: Exception, times: int = 1) -> None:
    """Let a write happen, alone or in a transaction, without its answer coming back."""
    left = [failure] * times

    async def lost(request: TransportRequest) -> None:
        in_transaction = request.path.endswith("/transactions") and write.encode() in request.body
        if left and request.method != "GET" and (in_transaction or request.path.endswith(write)):
            raise left.pop()

    transport.after = lost


@pytest.mark.parametrize("transactions", [True, False])
@pytest.mark.parametrize("failure", LOST, ids=["broken", "timeout"])
async def test_a_binding_whose_answer_got_lost_keeps_its_devices(tmp_path, failure, transactions):
    async with place(WAY, tmp_path) as here:
        client, transport = here.intercept_client(transactions=transactions)
        lose(transport, "/pods/p/binding", failure)
        async with here.scheduling(client) as scheduler:
            await here.cluster(1, devices=1)
            await here.make(asks(exactly(), name="c", made=False), pod("p", by_name("c")))
            (bound,) = await here.until_bound("p")
            found = await here.stays(lambda: here.claim("c"))
            assert devices_in(found) == ["node-a/gpu-0"]
            assert [each.uid for each in found.status.reserved_for] == [bound.metadata.uid]
            assert len(scheduler._queue) == 0


@pytest.mark.parametrize("transactions", [True, False])
@pytest.mark.parametrize("failure", LOST, ids=["broken", "timeout"])
async def test_devices_whose_answer_got_lost_are_not_promised_again(tmp_path, failure, transactions):
    """The watch of claims stands still, so that only the server can tell what became of the write."""
    async with place(WAY, tmp_path) as here:
        client, transport = here.intercept_client(transactions=transactions)
        async with here.scheduling(client) as scheduler:
            await here.cluster(1, devices=1)
            await here.make(asks(exactly(), name="c", made=False), asks(exactly(), name="d", made=False))
            await here.make(pod("first"))
            await here.until_bound("first")  # everything has been seen
            transport.event = late = RequestGate("GET", "/resourceclaims")
            lose(transport, "/resourceclaims/c/status", failure)
            await here.make(pod("p", by_name("c")))
            await here.until_bound("p")
            await here.make(pod("q", by_name("d")))
            await here.until_refused("q", "d")
            assert scheduler._binder.reservations.conflicts == 0
            late.open()


@pytest.mark.parametrize("transactions", [True, False])
async def test_a_pod_that_was_bound_unseen_does_not_lose_its_devices_when_it_fits_nowhere(
    tmp_path, transactions
):
    """Its node is closed, another has devices, and the scheduler has not seen that it runs already."""
    async with place(WAY, tmp_path) as here:
        client, transport = here.intercept_client(transactions=transactions)
        lose(transport, "/pods/p/binding", LOST[0], times=100)
        transport.before = gate = gate_allocation("c", transactions=transactions)
        async with here.scheduling(client) as scheduler:
            await here.cluster(2, devices=0)
            await here.make(devices_of("node-a", "gpu-0"), asks(exactly(), name="c", made=False))
            await here.make(pod("p", by_name("c")))
            await gate.reached.wait()
            transport.event = late = RequestGate("GET", "/pods")
            gate.open()
            (bound,) = await here.until_bound("p")
            assert bound.spec.node_name == "node-a"
            await here.client.patch(NODE, "node-a", MergePatch({"spec": {"unschedulable": True}}))
            entry = scheduler._queue.get(bound.metadata.uid)
            assert entry is not None
            tried = entry.attempts
            await here.until(lambda: attempts(entry), lambda count: count > tried + 3)
            found = await here.claim("c")
            assert devices_in(found) == ["node-a/gpu-0"]
            assert [each.uid for each in found.status.reserved_for] == [bound.metadata.uid]
            late.open()


async def attempts(entry: object) -> int:
    return int(getattr(entry, "attempts", 0))
