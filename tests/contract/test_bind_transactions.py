"""A pod and its claims are bound in one transaction on a real server, or one by one where that has to be."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from dray.api.resource import ResourceClaim
from dray.claims.claim_names import FINALIZER
from dray.client.client import DeleteOptions
from dray.client.errors import ConflictError, ServerTimeoutError, ServerUnreachableError
from dray.client.transport import TransportRequest
from dray.scheduler.binding.errors import PodGoneOrBoundError, StalePlacementError
from dray.scheduler.binding.reservations import MAX_WRITE_ATTEMPTS
from tests.contract.binding import TRANSACTION, BindingPlace, binding_place
from tests.contract.controlled import by_name, pod
from tests.contract.documents import allocation
from tests.contract.newer_transport import NewerTransport
from tests.contract.scheduled import asks, exactly


async def delete_claim(on: BindingPlace, name: str) -> None:
    await on.here.client.delete(ResourceClaim, name, "default", DeleteOptions(grace_seconds=0))


def devices_of(claim: ResourceClaim) -> list[str]:
    found = claim.status.allocation
    return [] if found is None else [each.device for each in found.devices.results]


async def untouched(on: BindingPlace, *claims: str) -> bool:
    """Whether claims have no devices, no consumer and no finalizer."""
    found = [await on.here.claim(name) for name in claims]
    return all(
        (each.status.allocation, each.status.reserved_for, each.metadata.finalizers) == (None, (), ())
        for each in found
    )


async def test_a_pod_and_its_claims_are_one_write(tmp_path):
    async with binding_place(tmp_path) as on:
        await on.make("a", "b")
        await on.bind(await on.place("p", {"a": "gpu-0", "b": "gpu-1"}))
        assert on.list_writes() == [TRANSACTION]
        assert await on.node_of("p") == "node-a"
        for name, device in (("a", "gpu-0"), ("b", "gpu-1")):
            stored = await on.here.claim(name)
            assert (devices_of(stored), await on.users(name)) == ([device], ["p"])
            assert stored.metadata.finalizers == (FINALIZER,)
            assert on.book.get_stored(stored) == stored
            assert not on.book.has_pending_allocation(stored)
        assert len(on.binder.reservations.locks) == 0


async def test_a_claim_with_its_finalizer_is_written_once(tmp_path):
    async with binding_place(tmp_path) as on:
        await on.make("a")
        await on.protect("a")
        before = (await on.here.claim("a")).metadata.resource_version
        await on.bind(await on.place("p", {"a": "gpu-0"}))
        assert int((await on.here.claim("a")).metadata.resource_version) == int(before) + 1


async def test_a_pod_whose_claims_are_reserved_already_needs_the_binding_alone(tmp_path):
    async with binding_place(tmp_path) as on:
        await on.make("a")
        await on.here.allocate("a", "p")
        await on.see("a")
        await on.bind(await on.place("p", {"a": ""}))
        assert on.list_writes() == ["POST p/binding"]


async def test_what_somebody_else_reserved_is_asked_for_before_the_pod_is_bound(tmp_path):
    """A server that goes on from a copy may know less of a claim than the watch has shown."""
    async with binding_place(tmp_path) as on:
        await on.make("a", "b")
        await on.here.allocate("a", "p")
        await on.see("a")
        placement = await on.place("p", {"a": "", "b": "gpu-1"})
        await on.change_claim("a", {"status": {"allocation": None, "reservedFor": None}}, "status")
        with pytest.raises(StalePlacementError, match="claim default/a has lost its devices"):
            await on.bind(placement)
        assert await untouched(on, "a", "b")
        assert await on.node_of("p") == ""


@pytest.mark.parametrize("transactions", [True, False])
async def test_a_newer_version_is_read_and_checked_again(tmp_path, transactions):
    async with binding_place(tmp_path, transactions=transactions) as on:
        await on.make("a")
        placement = await on.place("p", {"a": "gpu-0"})
        await on.change_claim("a", {"metadata": {"labels": {"x": "y"}}})
        await on.bind(placement)
        stored = await on.here.claim("a")
        assert (stored.metadata.labels, devices_of(stored)) == ({"x": "y"}, ["gpu-0"])
        assert on.binder.reservations.conflicts == 1
        assert await on.node_of("p") == "node-a"


async def test_a_claim_that_others_change_all_the_time_ends_the_attempt(tmp_path):
    async with binding_place(tmp_path) as on:
        await on.make("a")
        placement = await on.place("p", {"a": "gpu-0"})

        async def change(request: TransportRequest) -> None:
            if request.path.endswith("/transactions"):
                labels = {"sent": str(len(on.transport.asked))}
                await on.change_claim("a", {"metadata": {"labels": labels}})

        on.transport.before = change
        with pytest.raises(StalePlacementError, match="pod default/p change faster than they can be written"):
            await on.bind(placement)
        assert on.binder.reservations.conflicts == MAX_WRITE_ATTEMPTS
        assert await untouched(on, "a")


@pytest.mark.parametrize("transactions", [True, False])
async def test_the_ledger_names_the_device_and_its_holder_and_nothing_is_written(tmp_path, transactions):
    async with binding_place(tmp_path, transactions=transactions) as on:
        await on.make("other", pods=())
        await on.here.allocate("other", device="gpu-1")
        await on.make("a", "b")
        placement = await on.place("p", {"a": "gpu-0", "b": "gpu-1"})
        with pytest.raises(StalePlacementError) as refused:
            await on.bind(placement)
        said = str(refused.value)
        assert "device gpu.example.com/node-a/gpu-1 is held by claim default/other" in said
        assert "request" not in said
        assert await on.node_of("p") == ""
        for name in "ab":
            assert (devices_of(await on.here.claim(name)), await on.users(name)) == ([], [])
        if transactions:
            assert await untouched(on, "a", "b")


async def delete_pod(on: BindingPlace) -> None:
    await on.here.delete("p")


async def replace_pod(on: BindingPlace) -> None:
    await on.here.delete("p")
    await on.here.make(pod("p", by_name("a")))


async def bind_pod(on: BindingPlace) -> None:
    await on.here.bind("p", "node-b")


@pytest.mark.parametrize("happen", [delete_pod, replace_pod, bind_pod])
async def test_a_pod_that_needs_no_node_any_more_gets_nothing(tmp_path, happen):
    async with binding_place(tmp_path) as on:
        await on.make("a")
        placement = await on.place("p", {"a": "gpu-0"})
        await happen(on)
        with pytest.raises(PodGoneOrBoundError):
            await on.bind(placement)
        assert await untouched(on, "a")


async def test_a_pod_that_is_being_deleted_gets_nothing_and_loses_what_it_had(tmp_path):
    async with binding_place(tmp_path) as on:
        await on.make("a", "b", pods=("first", "p"))
        await on.change_claim("a", {"metadata": {"finalizers": [FINALIZER]}})
        await on.hold("p")
        await on.see("a")
        first = await on.place("first", {"a": "gpu-0"})
        second = await on.place("p", {"a": "gpu-0", "b": "gpu-1"})
        await on.here.delete("p")
        ends = await asyncio.gather(on.bind(first), on.bind(second), return_exceptions=True)
        assert ends[0] is None
        assert isinstance(ends[1], ConflictError)
        assert await on.users("a") == ["first"]
        assert await untouched(on, "b")


@pytest.mark.parametrize("again", [False, True])
async def test_a_claim_that_is_deleted_ends_the_attempt(tmp_path, again):
    async with binding_place(tmp_path) as on:
        await on.make("a", "b")
        placement = await on.place("p", {"a": "gpu-0", "b": "gpu-1"})
        await delete_claim(on, "a")
        if again:
            await on.here.make(asks(exactly(), name="a", made=False))
        with pytest.raises(StalePlacementError, match="claim default/a was deleted"):
            await on.bind(placement)
        assert await untouched(on, "b", *("a" if again else ""))
        assert await on.node_of("p") == ""


async def test_a_claim_that_lost_its_devices_ends_the_attempt(tmp_path):
    async with binding_place(tmp_path) as on:
        await on.make("a", pods=("other", "p"))
        await on.here.allocate("a", "other")
        await on.see("a")
        placement = await on.place("p", {"a": ""})
        await on.change_claim("a", {"status": {"allocation": None, "reservedFor": None}}, "status")
        with pytest.raises(StalePlacementError, match="claim default/a has lost its devices"):
            await on.bind(placement)
        assert (await on.users("a"), await on.node_of("p")) == ([], "")


async def test_a_claim_that_another_scheduler_gave_devices_elsewhere_ends_the_attempt(tmp_path):
    async with binding_place(tmp_path) as on:
        await on.make("a")
        placement = await on.place("p", {"a": "gpu-0"})
        elsewhere = allocation(node="node-b")
        elsewhere["devices"]["results"][0]["pool"] = "elsewhere"
        await on.change_claim("a", {"status": {"allocation": elsewhere}}, "status")
        with pytest.raises(StalePlacementError, match="got its devices elsewhere, out of reach of node-a"):
            await on.bind(placement)
        assert (await on.users("a"), await on.node_of("p")) == ([], "")


async def test_a_node_that_is_gone_gets_nothing(tmp_path):
    async with binding_place(tmp_path) as on:
        await on.make("a")
        placement = await on.place("p", {"a": "gpu-0"})
        on.binder.transactions.has_node = lambda name: name != "node-a"
        with pytest.raises(StalePlacementError, match="node node-a is gone"):
            await on.bind(placement)
        assert on.list_writes() == []


# --- single writes ---


async def test_devices_that_have_to_become_ready_are_waited_for_before_the_binding(tmp_path):
    async with binding_place(tmp_path) as on:
        await on.make("a")
        placement = await on.place("p", {"a": "gpu-0"})
        counted = on.book.get("default", "a")
        assert counted is not None
        assert counted.status.allocation is not None
        (result,) = counted.status.allocation.devices.results
        waiting = replace(result, binding_conditions=("attached",))
        slow = replace(
            counted.status.allocation, devices=replace(counted.status.allocation.devices, results=(waiting,))
        )
        on.book.remove_pending_user(counted, placement.pending_pod.pod.metadata.uid)
        on.book.add_pending_allocation(counted, slow, placement.pending_pod.pod.metadata.uid)
        assert not await on.binder.try_bind_together(placement)
        assert on.list_writes() == []


async def test_a_server_that_keeps_no_ledger_gets_single_writes(tmp_path):
    async with binding_place(tmp_path) as on:
        await on.make("a")
        placement = await on.place("p", {"a": "gpu-0"})
        on.binder.reservations.duplicate_check = object()  # type: ignore[assignment]
        assert not await on.binder.try_bind_together(placement)
        on.binder.reservations.needs_duplicate_check = lambda: False
        assert await on.binder.try_bind_together(placement)


async def test_a_webhook_that_reviews_claims_gets_single_writes(tmp_path):
    async with binding_place(tmp_path) as on:
        await on.make("a", pods=("p", "q"))
        await on.protect("a")
        rule = {
            "apiGroups": ["resource.k8s.io"],
            "apiVersions": ["v1"],
            "operations": ["UPDATE"],
            "resources": ["resourceclaims/status"],
        }
        hook = {
            "name": "hook.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:1/check"},
            "failurePolicy": "Ignore",
            "rules": [rule],
        }
        await on.here.make(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "hook"},
                "webhooks": [hook],
            }
        )
        for name in ("p", "q"):
            await on.bind(await on.place(name, {"a": "gpu-0"}))
        assert on.list_writes() == [
            TRANSACTION,
            "PUT a/status",
            "POST p/binding",
            "PUT a/status",  # the server declined a moment ago
            "POST q/binding",
        ]
        assert await on.users("a") == ["p", "q"]


async def test_a_server_without_transactions_gets_single_writes(tmp_path):
    async with binding_place(tmp_path, transactions=False) as on:
        await on.make("a")
        await on.bind(await on.place("p", {"a": "gpu-0"}))
        assert on.list_writes() == ["PATCH resourceclaims/a", "PUT a/status", "POST p/binding"]


async def test_a_claim_that_is_refused_as_invalid_is_tried_alone(tmp_path):
    """Alone, the rest of a claim with opaque parameters that JSON changes may pass as a patch."""
    async with binding_place(tmp_path) as on:
        await on.make("a")
        placement = await on.place("p", {"a": "gpu-0"}, request="nobody-asked-for-it")
        assert not await on.binder.try_bind_together(placement)
        assert await untouched(on, "a")


async def test_a_claim_with_fields_that_we_do_not_know_is_patched(tmp_path):
    async with binding_place(tmp_path) as on:
        on.client._rest_client.transport = NewerTransport(on.transport)
        await on.here.make(asks(exactly("newer"), name="a", made=False), pod("p", by_name("a")))
        await on.see("a")
        assert (await on.client.get(ResourceClaim, "a", "default")).metadata.name == "a"
        assert on.client.get_unknown_fields(ResourceClaim)
        await on.bind(await on.place("p", {"a": "gpu-0"}, request="newer"))
        assert on.list_writes() == ["PATCH resourceclaims/a", "PATCH a/status", "POST p/binding"]


# --- responses that get lost ---


def lose(on: BindingPlace, failure: Exception, *, arrives: bool) -> None:
    """Let a transaction get no response, whether it arrives or not."""

    async def meddle(request: TransportRequest) -> None:
        if request.path.endswith("/transactions"):
            raise failure

    if arrives:
        on.transport.after = meddle
    else:
        on.transport.before = meddle


@pytest.mark.parametrize("arrives", [True, False])
async def test_without_a_response_everything_stays_and_the_truth_is_read(tmp_path, arrives):
    async with binding_place(tmp_path) as on:
        await on.make("a")
        placement = await on.place("p", {"a": "gpu-0"})
        lose(on, ServerUnreachableError("the connection broke"), arrives=arrives)
        with pytest.raises(ServerUnreachableError):
            await on.bind(placement)
        assert on.list_writes() == [TRANSACTION]
        await on.binder.reread_claims(placement)
        known = on.book.get_stored(placement.pending_pod.claims[0])
        assert known == await on.here.claim("a")
        assert devices_of(known) == (["gpu-0"] if arrives else [])
        assert (await on.users("a"), await on.node_of("p")) == ((["p"], "node-a") if arrives else ([], ""))


@pytest.mark.parametrize("arrives", [True, False])
async def test_after_a_timeout_a_pod_that_was_bound_keeps_everything(tmp_path, arrives):
    async with binding_place(tmp_path) as on:
        await on.make("a")
        placement = await on.place("p", {"a": "gpu-0"})
        lose(on, ServerTimeoutError(504, {"message": "it took too long"}), arrives=arrives)
        with pytest.raises(PodGoneOrBoundError if arrives else ServerTimeoutError):
            await on.bind(placement)
        assert on.list_writes() == [TRANSACTION]
        assert (await on.users("a"), await on.node_of("p")) == ((["p"], "node-a") if arrives else ([], ""))
