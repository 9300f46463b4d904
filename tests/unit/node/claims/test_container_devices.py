"""Which CDI devices a container gets."""

from __future__ import annotations

import pytest

from dray.api.core import ContainerClaim
from dray.node.claims.container_devices import (
    ContainerDevice,
    find_unprepared_entries,
    list_cdi_names,
    list_container_devices,
)
from dray.node.claims.record import (
    ClaimsRecord,
    ClaimUser,
    DriverPart,
    NodeClaimStage,
    RecordedClaim,
    RecordedDevice,
)
from dray.node.plugins.driver_interface import PreparedDevice


def device(name: str, *requests: str) -> PreparedDevice:
    return PreparedDevice(request_names=requests, pool="p", device=name, cdi=(f"v/c={name}",))


def part(
    driver: str, *devices: PreparedDevice, state: NodeClaimStage = NodeClaimStage.PREPARED, **wanted: str
) -> DriverPart:
    keys = tuple(RecordedDevice(pool="p", device=name, request=request) for name, request in wanted.items())
    return DriverPart(driver=driver, state=state, devices=devices, wanted=keys)


def record(*parts: DriverPart) -> ClaimsRecord:
    user = ClaimUser(uid="a", entries=("gpus", "again"))
    other = RecordedClaim(
        uid="y", users=(ClaimUser(uid="b", entries=("gpus",)),), parts=(part("d", device("other")),)
    )
    return ClaimsRecord(claims=(RecordedClaim(uid="x", users=(user,), parts=parts), other))


def names(held: ClaimsRecord, *asked: tuple[str, str]) -> list[str]:
    claims = [ContainerClaim(name=name, request=request) for name, request in asked]
    return [name.removeprefix("v/c=") for name in list_cdi_names(held, "a", claims)]


ALL = record(
    part("d", device("one", "first"), device("two", "second"), device("both", "first", "second")),
    part("e", device("more", "first"), device("any")),
    part("f", device("large", "third"), large="third/large"),
)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([("gpus", "")], ["one", "two", "both", "more", "any", "large"]),
        ([("gpus", "first")], ["one", "both", "more", "any"]),
        ([("gpus", "second")], ["two", "both", "any"]),
        ([("gpus", "third")], ["any", "large"]),
        ([("gpus", "third/large")], ["any", "large"]),
        ([("gpus", "third/small")], ["any"]),
        ([("gpus", "second"), ("again", "first")], ["two", "both", "any", "one", "more"]),
        ([("nothing", "")], []),
        ([], []),
    ],
)
def test_a_container_gets_the_devices_of_the_claims_and_requests_it_names(asked, expected):
    assert names(ALL, *asked) == expected


def test_a_driver_may_name_the_alternative_itself():
    held = record(part("d", device("one", "gpu/large")))
    assert names(held, ("gpus", "gpu")) == ["one"]
    assert names(held, ("gpus", "gpu/large")) == ["one"]
    assert names(held, ("gpus", "gpu/small")) == []


def test_what_is_not_prepared_in_this_boot_is_not_in_hand():
    held = record(part("d", device("one"), state=NodeClaimStage.PREPARING))
    assert names(held, ("gpus", "")) == []
    assert find_unprepared_entries(held, "a", ("gpus", "again", "unknown")) == ("gpus", "again", "unknown")
    assert find_unprepared_entries(ALL, "a", ("gpus", "again")) == ()


def test_devices_have_driver_pool_and_name():
    claims = [ContainerClaim(name="gpus", request="second")]
    held = record(part("d", device("two", "second")))
    assert list_container_devices(held, "a", claims) == (
        ContainerDevice("gpus", "second", "d", "p", "two", ("v/c=two",)),
    )


def test_two_shares_of_a_device_serve_their_own_requests():
    keys = tuple(
        RecordedDevice(pool="p", device="gpu", request=f"{name}/any", share_id=name) for name in ("a", "b")
    )
    shares = tuple(
        PreparedDevice(request_names=(name,), pool="p", device="gpu", cdi=(f"v/c={name}",), share_id=name)
        for name in ("a", "b")
    )
    held = record(DriverPart(driver="d", state=NodeClaimStage.PREPARED, devices=shares, wanted=keys))
    assert names(held, ("gpus", "a")) == ["a"]
    assert names(held, ("gpus", "b")) == ["b"]


@pytest.mark.parametrize(
    ("request_name", "cdi", "resource"),
    [
        ("", ("v/c=1", "v/c=2"), ("claim:gpus", "v/c=1")),
        ("large", (), ("claim:gpus/large", "d/p/gpu-0")),
    ],
)
def test_a_device_has_the_name_and_the_id_of_the_kubelet_in_the_status_of_a_pod(request_name, cdi, resource):
    found = ContainerDevice("gpus", request_name, "d", "p", "gpu-0", cdi)
    assert (found.resource_name, found.resource_id) == resource
