"""Questions in which one departure matters, each with the answer of Kubernetes."""

from __future__ import annotations

from typing import Any

from dray.simulation.vectors.reference.departures import Departure

DRIVER = "d.example.com"
K = f"{DRIVER}/k"

FEATURES = (
    *(
        "AdminAccess",
        "CompatibilityGroups",
        "ConsumableCapacity",
        "DerivedAttributes",
        "DeviceBindingAndStatus",
    ),
    *("DeviceTaints", "FractionalCapacityRange", "ListTypeAttributes", "OptionalNodeOperations"),
    *("PartitionableDevices", "PrioritizedList"),
)
HERE = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}


def device(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, **fields}


def numbered(name: str, number: int) -> dict[str, Any]:
    """A device with an attribute."""
    return device(name, attributes={"k": {"int": number}})


def drawing(name: str, value: str = "1", **fields: Any) -> dict[str, Any]:
    """A device that draws the one counter there is."""
    return device(name, consumesCounters=[{"counterSet": "s", "counters": {"n": {"value": value}}, **fields}])


def shared(name: str, **policy: Any) -> dict[str, Any]:
    """A device that gives out its bandwidth by a policy."""
    capacity = {"bw": {"value": "10", "requestPolicy": policy}}
    return device(name, allowMultipleAllocations=True, capacity=capacity)


def page(
    *devices: dict[str, Any], pool: str = "p", name: str = "", count: int = 1, **fields: Any
) -> dict[str, Any]:
    """A slice; on this node unless it says where."""
    elsewhere = {"nodeSelector", "perDeviceNodeSelection"} & fields.keys()
    where = {} if elsewhere else {"nodeName": "n"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"slice-{pool}"},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": count},
            **where,
            **({"devices": list(devices)} if devices else {}),
            **fields,
        },
    }


def counters(number: int) -> dict[str, Any]:
    """The slice with the counter of pool p."""
    sets = [{"name": "s", "counters": {"n": {"value": str(number)}}}]
    return page(name="counters", count=2, sharedCounters=sets)


def exactly(count: int = 1, **fields: Any) -> dict[str, Any]:
    return {"deviceClassName": "c", "allocationMode": "ExactCount", "count": count, **fields}


def every(**fields: Any) -> dict[str, Any]:
    return {"deviceClassName": "c", "allocationMode": "All", **fields}


def got(name: str, request: str = "r", pool: str = "p", **fields: Any) -> dict[str, Any]:
    return {"request": request, "driver": DRIVER, "pool": pool, "device": name, **fields}


def allocated(*results: dict[str, Any], selector: dict[str, Any] = HERE) -> list[dict[str, Any]]:
    return [{"devices": {"results": list(results)}, "nodeSelector": selector}]


def failed(text: str) -> dict[str, Any]:
    return {"error": text, "onNode": False, "results": []}


def question(
    slices: list[dict[str, Any]], ask: Any, answer: Any, off: tuple[str, ...] = (), **fields: Any
) -> dict[str, Any]:
    """One claim with one request: what is asked exactly, or a list of alternatives."""
    if isinstance(ask, dict):
        request: dict[str, Any] = {"exactly": ask} if ask else {}
    else:
        request = {"firstAvailable": [{"name": f"s{i}", **sub} for i, sub in enumerate(ask)]}
    claim = {"requests": [{"name": "r", **request}], "constraints": fields.pop("constraints", [])}
    return {
        "name": "v",
        "features": {feature: feature not in off for feature in FEATURES},
        "node": {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}},
        "classes": [
            {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {}}
        ],
        "slices": slices,
        "claimsToAllocate": [
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": "k", "namespace": "ns"},
                "spec": {"devices": claim},
            }
        ],
        "upstream": {"experimental": answer},
        **fields,
    }


MATCH = [{"matchAttribute": K}]
BROKEN = [{"cel": {"expression": f'device.attributes["{DRIVER}"].k == 1'}}]
TERM = {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}
HELD = {"driver": DRIVER, "pool": "p", "device": "a"}
TOLERATIONS = [{"key": "maint", "operator": "Exists"}]
FINE = {"default": "100m", "validRange": {"min": "100m", "step": "100m", "max": "1"}}
ASKED = {"requests": {"bw": "230m"}}

QUESTIONS: dict[Departure, dict[str, Any]] = {
    Departure.ALL_POOL: question(
        [page(device("a"), count=2), page(device("b"), pool="q")],
        [every(), exactly()],
        failed(f"request r: asks for all devices, but resource pool {DRIVER}/p is currently being updated"),
    ),
    Departure.ALL_CONSTRAINT: question(
        [page(numbered("a", 1), numbered("b", 2))],
        [every(), exactly()],
        failed(f"cannot add device {DRIVER}/p/b because a claim constraint would not be satisfied"),
        constraints=MATCH,
    ),
    Departure.ALL_LIMIT: question(
        [page(*(device(f"a{i}") for i in range(33)))],
        every(),
        failed("claim ns/k: number of requested devices 33 exceeds the claim limit of 32"),
    ),
    Departure.ALL_UNREACHED: question(
        [page(numbered("a", 1), device("b"))],
        [exactly(), every(selectors=BROKEN)],
        failed(f"claim ns/k: selector #0 on device {DRIVER}/p/b: runtime error: no such key: k"),
    ),
    Departure.REACHED_ONLY: question(
        [
            page(
                device("a", nodeName="elsewhere"),
                device("b", nodeName="n", attributes={"k": {"int": 1}}),
                perDeviceNodeSelection=True,
            )
        ],
        exactly(selectors=BROKEN),
        failed(f"claim ns/k: selector #0 on device {DRIVER}/p/a: runtime error: no such key: k"),
    ),
    Departure.SELECTOR_TERMS: question(
        [page(device("a"), nodeSelector={"nodeSelectorTerms": [TERM, TERM]}), page(device("b"), pool="q")],
        exactly(),
        failed("claim ns/k: node selector of slice has more than one term"),
    ),
    Departure.EXACT_AMOUNTS: question(
        [page(shared("a", **FINE))],
        exactly(capacity=ASKED),
        allocated(got("a", shareID="x", consumedCapacity={"bw": "1"})),
        off=("FractionalCapacityRange",),
    ),
    Departure.ZERO_STEP: question(
        [page(shared("a", default="2", validRange={"min": "2", "step": "0"}))],
        exactly(capacity={"requests": {"bw": "3"}}),
        "PANIC: runtime error: integer divide by zero",
    ),
    Departure.NO_MIN: question(
        [page(shared("a", default="2", validRange={"max": "5"}))],
        exactly(capacity={"requests": {"bw": "3"}}),
        failed("panic: runtime error: invalid memory address or nil pointer dereference"),
    ),
    Departure.BOTH_CONSTRAINTS: question(
        [page(numbered("a", 1), numbered("b", 1))],
        exactly(2),
        allocated(got("a"), got("b")),
        constraints=[{"matchAttribute": K, "distinctAttribute": K}],
    ),
    Departure.NEGATIVE_COUNT: question(
        [page(device("a"))],
        [exactly(-1), exactly()],
        "PANIC: runtime error: makeslice: cap out of range",
    ),
    Departure.NEGATIVE_AMOUNT: question(
        [page(device("a"))], exactly(capacity={"requests": {"bw": "-1"}}), []
    ),
    Departure.BAD_NODE_SELECTOR: question(
        [
            page(
                device("a"),
                nodeSelector={
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": []}]}
                    ]
                },
            ),
            page(device("b"), pool="q"),
        ],
        exactly(),
        failed("gather pool information: failed to perform node selection for slice slice-p"),
    ),
    Departure.NO_TYPE: question([page(device("a"))], {}, "PANIC: nil pointer dereference"),
    Departure.ADMIN_COUNTERS: question(
        [page(drawing("a"), drawing("b"), count=2), counters(1)],
        exactly(adminAccess=True),
        [],
        allocatedDevices=[HELD],
    ),
    Departure.NEGATIVE_DRAWS: question(
        [page(drawing("a", value="-1"), drawing("b"), count=2), counters(0)],
        exactly(2),
        allocated(got("a"), got("b")),
    ),
    Departure.HELD_SHARES: question(
        [page(device("a"), device("b"))],
        exactly(),
        allocated(got("a")),
        allocatedSharedDeviceIDs=[{**HELD, "shareID": "00000000-0000-4000-8000-000000000000"}],
    ),
    Departure.SLICE_COUNT: question(
        [page(device("a"), count=2), page(device("b"), name="slice-z", count=3)],
        exactly(),
        allocated(got("a")),
    ),
    Departure.WHOLE_POOL: question(
        [page(device("a")), page(drawing("b"), name="slice-z", nodeName="other")],
        exactly(),
        allocated(got("a")),
    ),
    Departure.EMPTY_CONDITIONS: question(
        [page(device("a", bindingConditions=[])), page(device("b"), pool="q")],
        exactly(),
        allocated(got("b", pool="q")),
    ),
    Departure.PRIORITY: question(
        [page(device("a"), count=2), page(device("b"), name="slice-z", count=2, priority=1)],
        exactly(),
        allocated(got("a")),
    ),
    Departure.LISTS_OFF: question(
        [page(device("a", attributes={"k": {"strings": ["x"]}}), numbered("b", 1))],
        exactly(),
        allocated(got("a")),
        off=("ListTypeAttributes",),
        constraints=MATCH,
    ),
    Departure.SHARING_OFF: question(
        [page(shared("a"), device("b"))],
        exactly(selectors=[{"cel": {"expression": "!device.allowMultipleAllocations"}}]),
        allocated(got("b")),
        off=("ConsumableCapacity",),
    ),
    Departure.TOLERATIONS_OFF: question(
        [page(device("a"), device("b"))],
        exactly(tolerations=TOLERATIONS),
        allocated(got("a", tolerations=TOLERATIONS)),
        off=("DeviceTaints",),
    ),
    Departure.DISTINCT_OFF: question(
        [page(numbered("a", 1), numbered("b", 2))],
        exactly(2),
        allocated(got("a"), got("b")),
        off=("ConsumableCapacity",),
        constraints=[{"distinctAttribute": K}],
    ),
    Departure.TIME_LIMIT: question([page(device("a"), device("b"))], exactly(), failed("timeout")),
    Departure.COMPATIBILITY_GROUPS: question(
        [
            page(
                drawing("a", compatibilityGroups=["g"]),
                drawing("b", compatibilityGroups=["h"]),
                drawing("e", compatibilityGroups=["g", "h"]),
                count=2,
            ),
            counters(9),
        ],
        exactly(2),
        allocated(got("a"), got("e")),
    ),
    Departure.NODE_OPERATIONS: question(
        [page(device("a"), skipNodeOperations=["*"]), page(device("b"), pool="q")],
        exactly(),
        allocated(got("b", pool="q")),
    ),
    Departure.DERIVED_ATTRIBUTES: question(
        [page(numbered("a", 3), numbered("b", 5), numbered("e", 7))],
        exactly(2, derivedAttributes=[{"name": "my.example/odd", "expression": "1"}]),
        allocated(got("a"), got("e")),
        constraints=[{"matchAttribute": "my.example/odd"}],
    ),
}
