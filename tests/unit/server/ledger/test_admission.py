"""Ledger admission: allocations and ledger rows change together, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dray.claims.ledger.rows import LEDGER_PREFIX
from dray.server.http.errors import ApiStatusError
from dray.server.ledger.admission import LedgerAdmission
from dray.store import Delete, Put, TxnConflict
from tests.unit.claims.ledger_objects import device, slice_of
from tests.unit.server.registries import CLAIMS, PREPARATIONS, SLICES, World, preparation, result, world


def named(name: str, slice_: dict[str, Any]) -> dict[str, Any]:
    return slice_ | {"metadata": {"name": name}}


def guarded(cache):
    return [LedgerAdmission(cache)]


async def denied(doing) -> dict[str, Any]:
    with pytest.raises(ApiStatusError) as failure:
        await doing
    assert failure.value.code == 409
    return failure.value.to_status()


def rows(there: World) -> list[bytes]:
    return [entry.key for entry in there.cache.list_rows(LEDGER_PREFIX)]


async def two_claims(there: World) -> None:
    await there.put(named("s", slice_of([device("gpu-0"), device("gpu-1")])))
    await there.claim("a")
    await there.claim("b")


def test_the_second_allocation_of_a_device_is_refused_with_the_holder():
    async def scenario() -> None:
        async with world(guarded) as there:
            await two_claims(there)
            await there.allocate("a", result("gpu-0"))
            status = await denied(there.allocate("b", result("gpu-1"), result("gpu-0")))
            assert status == {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": 'Operation cannot be fulfilled on resourceclaims.resource.k8s.io "b": '
                "device gpu.example.com/pool/gpu-0 is held by claim default/a",
                "reason": "Conflict",
                "details": {
                    "name": "b",
                    "group": "resource.k8s.io",
                    "kind": "resourceclaims",
                    "causes": [
                        {
                            "reason": "DeviceHeld",
                            "message": "device gpu.example.com/pool/gpu-0 is held by claim default/a",
                            "field": "status.allocation.devices.results[1]",
                        }
                    ],
                },
                "code": 409,
            }
            await there.caught_up()
            assert rows(there) == [b"/ledger/devices/gpu.example.com/pool/gpu-0"]

    asyncio.run(scenario())


@pytest.mark.parametrize("way", ["deallocate", "delete"])
def test_a_deallocated_claim_releases_its_devices(way: str):
    async def scenario() -> None:
        async with world(guarded) as there:
            await two_claims(there)
            await there.allocate("a", result("gpu-0"), result("gpu-1"))
            await (there.deallocate("a") if way == "deallocate" else there.delete(CLAIMS, "default", "a"))
            await there.caught_up()
            assert rows(there) == []
            await there.allocate("b", result("gpu-0"))

    asyncio.run(scenario())


def test_other_changes_of_a_claim_do_not_touch_the_ledger():
    async def scenario() -> None:
        async with world(guarded) as there:
            await two_claims(there)
            await there.allocate("a", result("gpu-0"))
            await there.caught_up()
            before = there.cache.get_row(b"/ledger/devices/gpu.example.com/pool/gpu-0")

            def label(document: dict[str, Any]) -> None:
                document["metadata"]["labels"] = {"x": "y"}

            await there.change(CLAIMS, "default", "a", label)
            await there.caught_up()
            assert there.cache.get_row(b"/ledger/devices/gpu.example.com/pool/gpu-0") == before

    asyncio.run(scenario())


def test_of_many_allocations_of_one_device_exactly_one_is_stored():
    async def scenario() -> None:
        async with world(guarded) as there:
            await there.put(named("s", slice_of([device("gpu-0")])))
            for i in range(20):
                await there.claim(f"c{i}")
            outcomes = await asyncio.gather(
                *(there.allocate(f"c{i}", result("gpu-0")) for i in range(20)), return_exceptions=True
            )
            assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) == 1

    asyncio.run(scenario())


def test_shares_are_checked_against_the_slice_at_the_time_of_the_write():
    """The slice changes between review and commit: the compare fails and the share is reviewed again."""

    async def scenario() -> None:
        async with world(guarded) as there:
            shared = slice_of([device("gpu-0", memory="40Gi", shared=True)])
            await there.put(named("s", shared))
            await there.claim("a")
            held = there.cache.get(SLICES, "", "s")
            assert held is not None
            meddled = False
            txn = there.store.txn

            async def meddling(compares, writes):
                nonlocal meddled
                if not meddled and len(writes) > 1:
                    meddled = True
                    smaller = held.value.replace(b"40Gi", b"4Gi")
                    await txn([], [Put(held.key, smaller)])
                    outcome = await txn(compares, writes)
                    assert isinstance(outcome, TxnConflict)
                    return outcome
                return await txn(compares, writes)

            there.store.txn = meddling  # type: ignore[method-assign]
            status = await denied(there.allocate("a", result("gpu-0", share="s1", memory="10Gi")))
            assert meddled
            assert "10Gi asked, 4Gi left of 4Gi" in status["message"]

    asyncio.run(scenario())


def test_the_quarantine_lasts_until_the_preparation_is_deleted():
    async def scenario() -> None:
        async with world(guarded) as there:
            await two_claims(there)
            await there.allocate("a", result("gpu-0"))
            held = there.cache.get(CLAIMS, "default", "a")
            assert held is not None
            await there.put(preparation("p", "n1", "a", held.metadata.uid))
            await there.delete(CLAIMS, "default", "a")
            status = await denied(there.allocate("b", result("gpu-0")))
            assert status["message"].endswith(
                "is quarantined on node n1: claim default/a was removed while prepared; "
                "confirm release or run `dray fence node n1`"
            )
            await there.claim("a", uid="another")
            await denied(there.allocate("a", result("gpu-0")))
            await there.delete(PREPARATIONS, "", "p")
            await there.allocate("b", result("gpu-0"))

    asyncio.run(scenario())


def test_a_preparation_and_a_deallocation_at_the_same_time_agree():
    """Whichever is first: either the preparation is refused, or the device is quarantined."""

    async def scenario(first: str) -> None:
        async with world(guarded) as there:
            await two_claims(there)
            await there.allocate("a", result("gpu-0"))
            await there.caught_up()
            uid = there.cache.get(CLAIMS, "default", "a").metadata.uid  # type: ignore[union-attr]
            steps = [there.put(preparation("p", "n1", "a", uid)), there.deallocate("a")]
            if first == "deallocation":
                steps.reverse()
            outcomes = await asyncio.gather(*steps, return_exceptions=True)
            refused = [outcome for outcome in outcomes if isinstance(outcome, ApiStatusError)]
            if refused:
                await there.allocate("b", result("gpu-0"))
            else:
                await denied(there.allocate("b", result("gpu-0")))

    asyncio.run(scenario("preparation"))
    asyncio.run(scenario("deallocation"))


def test_preparations_of_claims_that_do_not_exist_are_refused():
    async def scenario() -> None:
        async with world(guarded) as there:
            await two_claims(there)
            uid = there.cache.get(CLAIMS, "default", "a").metadata.uid  # type: ignore[union-attr]
            for name, wanted, why in (
                ("nobody", uid, "claim default/nobody does not exist; there is nothing to prepare"),
                ("a", uid, "claim default/a has no allocation; wait until it has one"),
                ("a", "older", f"claim default/a has uid {uid}, not older: it was replaced by another claim"),
            ):
                status = await denied(there.put(preparation("p", "n1", name, wanted)))
                assert status["message"].endswith(f'preparations.dray.dev "p": {why}')
                assert status["details"]["causes"][0]["reason"] == "ClaimNotAllocated"
            assert rows(there) == []

    asyncio.run(scenario())


def test_a_preparation_with_owners_is_refused():
    async def scenario() -> None:
        async with world(guarded) as there:
            await two_claims(there)
            await there.allocate("a", result("gpu-0"))
            uid = there.cache.get(CLAIMS, "default", "a").metadata.uid  # type: ignore[union-attr]
            owned = preparation("p", "n1", "a", uid)
            owner = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "name": "a", "uid": uid}
            owned["metadata"]["ownerReferences"] = [owner]
            with pytest.raises(ApiStatusError, match="a preparation has no owners") as failure:
                await there.put(owned)
            assert failure.value.code == 403
            await there.put(preparation("p", "n1", "a", uid))
            with pytest.raises(ApiStatusError, match="a preparation has no owners"):
                await there.put(owned)

    asyncio.run(scenario())


def test_a_new_generation_counts_from_the_moment_it_is_complete():
    async def scenario() -> None:
        async with world(guarded) as there:
            old = slice_of([device("gpu-0", memory="40Gi", shared=True)], generation=1, count=1)
            new = slice_of([device("gpu-0", memory="8Gi", shared=True)], generation=2, count=2)
            rest = slice_of([device("gpu-1")], generation=2, count=2)
            await there.put(named("s1", old))
            await there.put(named("s2", new))
            await there.claim("a")
            await there.claim("b")
            await there.allocate("a", result("gpu-0", share="s1", memory="20Gi"))
            await there.put(named("s3", rest))
            status = await denied(there.allocate("b", result("gpu-0", share="s2", memory="1Gi")))
            assert "1Gi asked, -12Gi left of 8Gi" in status["message"]

    asyncio.run(scenario())


def test_slices_that_change_their_pool_or_are_deleted_are_dropped():
    async def scenario() -> None:
        async with world(guarded) as there:
            await there.put(named("s", slice_of([device("gpu-0", memory="4Gi", shared=True)])))
            await there.claim("a")
            await there.put(
                named("s", slice_of([device("gpu-0", memory="4Gi", shared=True)], pool="other/pool"))
            )
            status = await denied(there.allocate("a", result("gpu-0", share="s1", memory="1Gi")))
            assert "is not published by any slice" in status["message"]
            await there.allocate("a", result("gpu-0", pool="other/pool", share="s1", memory="1Gi"))
            await there.caught_up()
            assert rows(there) == [b"/ledger/devices/gpu.example.com/other%2Fpool/gpu-0"]
            await there.deallocate("a")
            await there.delete(SLICES, "", "s")
            await denied(there.allocate("a", result("gpu-0", pool="other/pool", share="s1", memory="1Gi")))

    asyncio.run(scenario())


def test_denials_are_counted_and_an_unenforced_rule_does_nothing():
    async def scenario() -> None:
        counted: list[str] = []
        async with world(lambda cache: [LedgerAdmission(cache, on_denied=counted.append)]) as there:
            await two_claims(there)
            await there.allocate("a", result("gpu-0"))
            await denied(there.allocate("b", result("gpu-0")))
            assert counted == ["DeviceHeld"]
        async with world(lambda cache: [LedgerAdmission(cache, enforced=False)]) as there:
            await two_claims(there)
            await there.allocate("a", result("gpu-0"))
            await there.allocate("b", result("gpu-0"))
            assert rows(there) == []

    asyncio.run(scenario())


def test_a_row_that_changed_meanwhile_is_read_again():
    async def scenario() -> None:
        async with world(guarded) as there:
            await two_claims(there)
            await there.allocate("a", result("gpu-0"))
            await there.caught_up()
            place = rows(there)[0]
            await there.store.txn([], [Delete(place)])
            await there.allocate("b", result("gpu-0"))

    asyncio.run(scenario())
