"""Claims are counted as they are added, changed and deleted."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dray.api.meta import ObjectMeta
from dray.api.resource import (
    AllocationResult,
    DeviceClaim,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from dray.claims.claim_names import POD_CLAIM_NAME_ANNOTATION
from dray.client.informers.indexer import IndexedObject
from dray.client.informers.informer import Informer
from dray.client.object_refs import ObjectKey
from dray.controllers.metrics import ClaimCounts
from tests.unit.client.fakeapi import FakeApi, client_of

PLAIN = DeviceRequest(name="r", exactly=ExactDeviceRequest())
ADMIN = DeviceRequest(name="r", exactly=ExactDeviceRequest(admin_access=True))
EITHER = DeviceRequest(name="r", first_available=(DeviceSubRequest(name="s"),))


def claim(name: str, request: DeviceRequest, *, allocated: bool, made: bool) -> ResourceClaim:
    return ResourceClaim(
        metadata=ObjectMeta(name=name, annotations={POD_CLAIM_NAME_ANNOTATION: "e"} if made else {}),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=(request,))),
        status=ResourceClaimStatus(allocation=AllocationResult() if allocated else None),
    )


NAMES = {"plain": PLAIN, "admin": ADMIN, "either": EITHER}
STEPS = st.lists(
    st.tuples(st.sampled_from([*NAMES]), st.booleans(), st.booleans(), st.booleans()), max_size=20
)


@given(STEPS)
def test_the_counts_are_those_of_what_is_there(steps):
    informer: Informer[ResourceClaim] = Informer(client_of(FakeApi()), ResourceClaim)
    counts = ClaimCounts(informer)
    for version, (name, gone, allocated, made) in enumerate(steps):
        if gone:
            informer._indexer.remove(ObjectKey("", name))
        else:
            found = claim(name, NAMES[name], allocated=allocated, made=made)
            informer._indexer.put(ObjectKey("", name), IndexedObject(found, version, name))
    expected: Counter[tuple[str, ...]] = Counter()
    for found in informer.list_all():
        name = found.metadata.name
        expected[
            "true" if name == "admin" else "false",
            "true" if found.status.allocation is not None else "false",
            "true" if name == "either" else "false",
            "resource_claim_template" if found.metadata.annotations else "",
        ] += 1
    assert counts.by_labels == expected
    assert dict(counts.count_allocated()) == {
        ("false",): sum(n for sort, n in expected.items() if sort[1] == "true" and sort[2] == "false"),
        ("true",): sum(n for sort, n in expected.items() if sort[1] == "true" and sort[2] == "true"),
    }
