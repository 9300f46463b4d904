"""The largest slices that validation accepts can be stored."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api import limits
from dray.api.json_text import write_json
from dray.server.http.limits import ServerLimits
from dray.values import names
from tests.contract.api import path, serving

Document = dict[str, Any]

LONGEST_SUBDOMAIN, LONGEST_LABEL = 253, 63
LOWEST = -(2**31)


def sized(number: int, length: int) -> str:
    """A name of this length."""
    return f"{'x' * (length - 4)}{number:04}"


def qualified(number: int) -> str:
    return f"{sized(number, names.MAX_DOMAIN)}/{sized(number, names.MAX_ID)}"


def plain(number: int, _: str) -> Document:
    count = limits.ATTRIBUTES_AND_CAPACITIES_PER_DEVICE
    value = {"string": sized(number, limits.ATTRIBUTE_VALUE_BYTES)}
    return {"attributes": {qualified(each): value for each in range(count)}}


def listed(number: int, _: str) -> Document:
    """As many values as a device may have, most of them in one list."""
    single = limits.ATTRIBUTES_AND_CAPACITIES_PER_DEVICE - 1
    found = plain(number, "")["attributes"]
    many = limits.ATTRIBUTE_VALUES_PER_DEVICE - single
    items = [sized(each, limits.ATTRIBUTE_VALUE_BYTES) for each in range(many)]
    return {"attributes": found | {qualified(0): {"list": {"string": items}}}}


def shared(_: int, unit: str) -> Document:
    """Capacities with policies of ten values each."""
    values = [f"{100 + each}{unit}" for each in range(limits.VALID_VALUES)]
    policy = {"default": values[-1], "validValues": values}
    amount = {"value": f"999{unit}", "requestPolicy": policy}
    count = limits.ATTRIBUTES_AND_CAPACITIES_PER_DEVICE
    return {
        "allowMultipleAllocations": True,
        "capacity": {qualified(each): amount for each in range(count)},
    }


def rich(device: Document) -> Document:
    """The same with all taints and counters that a device may have."""
    key = f"{'x' * (LONGEST_SUBDOMAIN - 4)}.com/"
    taint = {"effect": "NoSchedule", "value": "x" * LONGEST_LABEL, "timeAdded": "2026-01-01T00:00:00Z"}
    taints = [{**taint, "key": key + sized(each, LONGEST_LABEL)} for each in range(limits.TAINTS_PER_DEVICE)]
    counters = {sized(each, LONGEST_LABEL): {"value": "999Gi"} for each in range(limits.COUNTERS_PER_SET)}
    consumes = [
        {"counterSet": sized(each, LONGEST_LABEL), "counters": counters}
        for each in range(limits.CONSUMPTIONS_PER_DEVICE)
    ]
    return device | {"taints": taints, "consumesCounters": consumes}


def largest(devices: list[Document]) -> Document:
    where = {"nodeName": "x" * LONGEST_SUBDOMAIN}
    pool = {"name": "x" * LONGEST_SUBDOMAIN, "generation": 2**63 - 1, "resourceSliceCount": 1}
    labels = {f"x.com/{sized(each, LONGEST_LABEL)}": "x" * LONGEST_LABEL for each in range(10)}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "x" * LONGEST_SUBDOMAIN, "labels": labels, "annotations": labels},
        "spec": {
            "driver": "x" * names.MAX_DRIVER,
            "pool": pool | {"priority": LOWEST},
            "priority": LOWEST,
            "perDeviceNodeSelection": True,
            "devices": [
                {"name": sized(number, LONGEST_LABEL), **where, **device}
                for number, device in enumerate(devices)
            ],
        },
    }


MOST, MOST_RICH = limits.DEVICES_PER_SLICE, limits.RICH_DEVICES_PER_SLICE


@pytest.mark.parametrize(
    ("devices", "fits"),
    [
        ([plain(number, "") for number in range(MOST)], True),
        ([listed(number, "") for number in range(MOST_RICH)], True),
        ([shared(number, "Gi") for number in range(MOST)], True),
        ([rich(listed(number, "")) for number in range(MOST_RICH)], True),
        ([rich(shared(number, "Gi")) for number in range(MOST_RICH)], True),
        # Ten amounts of 19 digits for each of 4,096 capacities are refused with a reason.
        ([shared(number, "0000000000000001") for number in range(MOST)], False),
    ],
    ids=["plain", "lists", "policies", "lists-and-more", "policies-and-more", "policies-without-units"],
)
@pytest.mark.req("K5075-141", "K5773-029")
async def test_the_largest_slices_are_stored(devices: list[Document], *, fits: bool) -> None:
    most = ServerLimits().max_object_bytes
    document = largest(devices)
    async with serving() as api:
        response = await api.ask("POST", path("resourceslices"), document)
        if not fits:
            assert (response.code, response.reason) == (413, "RequestEntityTooLarge")
            assert f"at most {most} are stored" in response.message
            return
        assert response.code == 201, response.message[:500]
        stored = await api.get(path("resourceslices", document["metadata"]["name"]))
        assert stored["spec"]["devices"] == document["spec"]["devices"], "nothing was left out"
        assert len(write_json(stored)) < most
