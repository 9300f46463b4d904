"""Fields behind gates: kept, dropped, kept because they were in use, per kind and per gate."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api import codec
from dray.api.kinds import KINDS, find_kind
from dray.api.strategies.gated_fields import DroppedField, drop_disabled_fields, find_disabling_gate
from dray.gates import GATES, GateSet

ALL_ON = GateSet.from_defaults()
CAPACITY = "DRAConsumableCapacity"
SHARE = "2b1dd7f7-1f0e-4d3f-8d3f-3c4a1c5ad7a5"


def off(*gates: str) -> GateSet:
    return ALL_ON.override(dict.fromkeys(gates, False))


def a_slice(device: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    devices = [{"name": "nic-0", **(device or {})}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {"driver": "nic.example.com", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}
        | spec
        | {"devices": devices},
    }


def claim_spec(exactly: dict[str, Any], sub: dict[str, Any], constraint: dict[str, Any]) -> dict[str, Any]:
    requests = [
        {"name": "a", "exactly": {"deviceClassName": "nic", **exactly}},
        {"name": "b", "firstAvailable": [{"name": "s", "deviceClassName": "nic", **sub}]},
    ]
    return {"devices": {"requests": requests, "constraints": [{"requests": ["a"], **constraint}]}}


def claim(spec: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, Any]:
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}
    return {**head, "spec": spec} | ({"status": status} if status else {})


def template(spec: dict[str, Any]) -> dict[str, Any]:
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "t"}}
    return {**head, "spec": {"spec": spec}}


def status(result: dict[str, Any], device: dict[str, Any] | None = None) -> dict[str, Any]:
    base = {"driver": "nic.example.com", "pool": "p", "device": "nic-0"}
    filled: dict[str, Any] = {"allocation": {"devices": {"results": [{"request": "a", **base, **result}]}}}
    return filled | ({"devices": [base | device]} if device is not None else {})


ASK = {"capacity": {"requests": {"bandwidth": "1Gi"}}}
PLAIN_SPEC = claim_spec({}, {}, {})
SHARED_SPEC = claim_spec(ASK, ASK, {"distinctAttribute": "nic.example.com/id"})
SHARED = {
    "allowMultipleAllocations": True,
    "capacity": {"bandwidth": {"value": "10Gi", "requestPolicy": {"default": "1Gi"}}},
}
PLAIN = {"capacity": {"bandwidth": {"value": "10Gi"}}}
CONSUMED = {"shareID": SHARE, "consumedCapacity": {"bandwidth": "1Gi"}}

WITH_AND_WITHOUT = {
    "slice": (a_slice(SHARED), a_slice(PLAIN)),
    "claim": (claim(SHARED_SPEC), claim(PLAIN_SPEC)),
    "template": (template(SHARED_SPEC), template(PLAIN_SPEC)),
    "status": (claim(PLAIN_SPEC, status(CONSUMED, {"shareID": SHARE})), claim(PLAIN_SPEC, status({}, {}))),
}


def dropped(
    new: dict[str, Any], old: dict[str, Any] | None, gates: GateSet
) -> tuple[Any, tuple[DroppedField, ...]]:
    decoded = codec.decode_document(new)
    before = codec.decode_document(old).object if old else None
    kept = drop_disabled_fields(decoded.kind, decoded.object, before, gates)
    return codec.to_document(kept.object), kept.dropped


@pytest.mark.req("K5075-119", "K5075-121")
@pytest.mark.parametrize("kind", WITH_AND_WITHOUT)
def test_shared_capacity_stays_with_the_gate_on(kind):
    shared, plain = WITH_AND_WITHOUT[kind]
    assert dropped(shared, None, ALL_ON) == (shared, ())
    assert dropped(shared, plain, ALL_ON) == (shared, ())
    assert dropped(shared, shared, ALL_ON) == (shared, ())


@pytest.mark.req("K5075-120", "K5075-125", "K5075-155")
@pytest.mark.parametrize("kind", WITH_AND_WITHOUT)
def test_shared_capacity_is_dropped_with_the_gate_off(kind):
    shared, plain = WITH_AND_WITHOUT[kind]
    for old in (None, plain):
        left, gone = dropped(shared, old, off(CAPACITY))
        assert left == plain
        assert {field.gate for field in gone} == {CAPACITY}


@pytest.mark.req("K5075-126")
def test_the_capacity_of_alternatives_is_dropped_too():
    _, gone = dropped(claim(SHARED_SPEC), None, off(CAPACITY))
    assert [str(field) for field in gone] == [
        f"spec.devices.{path}: dropped, because feature gate `{CAPACITY}` is off"
        for path in (
            "requests[0].exactly.capacity",
            "requests[1].firstAvailable[0].capacity",
            "constraints[0].distinctAttribute",
        )
    ]


OLD_USERS = {
    "flag": ("slice", a_slice({"allowMultipleAllocations": True})),
    "flag that says no": ("slice", a_slice({"allowMultipleAllocations": False})),
    "policy": ("slice", a_slice({"capacity": {"x": {"value": "1", "requestPolicy": {"default": "1"}}}})),
    "exact": ("claim", claim(claim_spec(ASK, {}, {}))),
    "alternative": ("claim", claim(claim_spec({}, ASK, {}))),
    "constraint": ("claim", claim(claim_spec({}, {}, {"distinctAttribute": "a.b/c"}))),
    "template exact": ("template", template(claim_spec(ASK, {}, {}))),
    "template alternative": ("template", template(claim_spec({}, ASK, {}))),
    "template constraint": ("template", template(claim_spec({}, {}, {"distinctAttribute": "a.b/c"}))),
}


@pytest.mark.req("K5075-122", "K5075-123")
@pytest.mark.parametrize("user", OLD_USERS)
def test_what_the_old_object_used_may_be_used_on(user):
    kind, old = OLD_USERS[user]
    shared, _ = WITH_AND_WITHOUT[kind]
    assert dropped(shared, old, off(CAPACITY)) == (shared, ())


OLD_STATUS = {
    "share": status({"shareID": SHARE}),
    "consumed": status({"consumedCapacity": {"bandwidth": "1Gi"}}),
    "device": status({}, {"shareID": SHARE}),
}


@pytest.mark.req("K5075-124", "K5075-156")
@pytest.mark.parametrize("user", OLD_STATUS)
def test_what_the_old_status_used_may_be_used_on(user):
    old = claim(PLAIN_SPEC, OLD_STATUS[user])
    new = claim(SHARED_SPEC, status(CONSUMED, {"shareID": SHARE}))
    assert dropped(new, old, off(CAPACITY)) == (new, ())


@pytest.mark.req("K5075-127")
def test_shares_are_dropped_alike_whether_drivers_report_devices_or_not():
    without_status = off(CAPACITY, "DRAResourceClaimDeviceStatus", "DRADeviceBindingConditions")
    new = claim(SHARED_SPEC, status(CONSUMED, {"shareID": SHARE}))
    assert dropped(new, None, off(CAPACITY))[0] == claim(PLAIN_SPEC, status({}, {}))
    assert dropped(new, None, without_status)[0] == claim(PLAIN_SPEC, status({}))
    for gates in (off(CAPACITY), without_status):
        assert dropped(claim(SHARED_SPEC, status(CONSUMED)), claim(SHARED_SPEC), gates) == (
            claim(SHARED_SPEC, status(CONSUMED)),
            (),
        )


@pytest.mark.req("K5075-157", "K5491-045")
@pytest.mark.parametrize(
    ("gate", "new"),
    [
        (CAPACITY, a_slice(SHARED)),
        (CAPACITY, claim(SHARED_SPEC)),
        ("DRAListTypeAttributes", a_slice({"attributes": {"numa": {"ints": [1, 2]}}})),
        ("DRAListTypeAttributes", a_slice({"attributes": {"numa": {"list": {"int": [1, 2]}}}})),
    ],
)
def test_turning_a_gate_on_again_does_not_restore_dropped_fields(gate, new):
    stored, gone = dropped(new, None, off(gate))
    assert gone
    assert dropped(stored, stored, ALL_ON) == (stored, ())
    assert dropped(new, stored, ALL_ON) == (new, ())


@pytest.mark.req("K4816-100")
@pytest.mark.parametrize("wrap", [claim, template])
def test_alternatives_are_dropped_with_their_gate_off_unless_in_use(wrap):
    gates = off("DRAPrioritizedList")
    without: dict[str, Any] = {
        "devices": {
            **PLAIN_SPEC["devices"],
            "requests": [PLAIN_SPEC["devices"]["requests"][0], {"name": "b"}],
        }
    }
    new = wrap(PLAIN_SPEC)
    prefix = "spec.spec" if wrap is template else "spec"
    gone = (DroppedField("DRAPrioritizedList", f"{prefix}.devices.requests[1].firstAvailable"),)
    assert dropped(new, None, gates) == (wrap(without), gone)
    assert dropped(new, wrap(without), gates) == (wrap(without), gone)
    assert dropped(new, new, gates) == (new, ())
    assert dropped(new, None, ALL_ON) == (new, ())


@pytest.mark.req("K4816-032")
def test_admin_access_is_dropped_with_its_gate_off():
    admin = claim(claim_spec({"adminAccess": True}, {}, {}), status({"adminAccess": True}))
    left, gone = dropped(admin, None, off("DRAAdminAccess"))
    assert left == claim(PLAIN_SPEC, status({}))
    assert [field.path for field in gone] == [
        "spec.devices.requests[0].exactly.adminAccess",
        "status.allocation.devices.results[0].adminAccess",
    ]
    assert dropped(admin, claim(claim_spec({"adminAccess": True}, {}, {})), off("DRAAdminAccess")) == (
        admin,
        (),
    )
    assert (
        codec.decode_document(claim(PLAIN_SPEC)).object.spec.devices.requests[0].exactly.admin_access is None
    )


@pytest.mark.req("K5491-046")
@pytest.mark.parametrize(
    "attribute",
    [
        {"ints": [1]},
        {"bools": [True]},
        {"strings": ["a"]},
        {"versions": ["1.0.0"]},
        {"ints": []},
        {"list": {"int": [1]}},
        {"list": {"bool": [True]}},
        {"list": {"string": ["a"]}},
        {"list": {"version": ["1.0.0"]}},
        {"list": {}},
    ],
    ids=str,
)
def test_list_attributes_cannot_be_created_with_their_gate_off(attribute):
    new = a_slice({"attributes": {"a": {"int": 1}, "b": attribute}})
    plain = a_slice({"attributes": {"a": {"int": 1}, "b": {}}})
    left, gone = dropped(new, None, off("DRAListTypeAttributes"))
    assert left == plain
    assert [field.path for field in gone] == [f"spec.devices[0].attributes[b].{next(iter(attribute))}"]
    assert dropped(new, new, off("DRAListTypeAttributes")) == (new, ())
    assert dropped(new, None, ALL_ON) == (new, ())


@pytest.mark.parametrize("priority", [5, 0, -1])
def test_priorities_are_dropped_with_their_gate_off_and_named(priority):
    gates = off("DRAResourceSlicePriority")
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    new = a_slice(priority=priority, pool={**pool, "priority": priority})
    left, gone = dropped(new, None, gates)
    assert left == a_slice()
    assert [field.path for field in gone] == ["spec.priority", "spec.pool.priority"]
    assert dropped(new, a_slice(priority=1), gates) == (new, ())
    assert dropped(new, None, ALL_ON) == (new, ())


def pod(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, **fields}


USING = pod(
    spec={
        "containers": [{"name": "c", "image": "i", "resources": {"claims": ["gpu"], "limits": {"cpu": "1"}}}],
        "initContainers": [{"name": "i", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
        "hostPID": True,
    },
    status={"phase": "Pending", "resourceClaimStatuses": [{"name": "gpu"}]},
)
NOT_USING = pod(
    spec={
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}],
        "initContainers": [{"name": "i", "resources": {}}],
        "hostPID": True,
    },
    status={"phase": "Pending"},
)


def of_pod(new: dict[str, Any], old: dict[str, Any] | None, gates: GateSet) -> tuple[Any, list[str]]:
    kind = find_kind("", "Pod")
    assert kind is not None
    kept = drop_disabled_fields(kind, new, old, gates)
    return kept.object, [field.path for field in kept.dropped]


@pytest.mark.req("K3063-164")
@pytest.mark.parametrize("old", [None, NOT_USING])
def test_with_the_main_gate_off_a_pod_cannot_start_to_use_claims(old):
    left, gone = of_pod(USING, old, GateSet(frozenset()))
    assert left == NOT_USING
    assert gone == [
        "spec.resourceClaims",
        "spec.initContainers[0].resources.claims",
        "spec.containers[0].resources.claims",
        "status.resourceClaimStatuses",
    ]


@pytest.mark.req("K3063-168")
def test_with_the_main_gate_off_a_pod_keeps_the_claims_it_has():
    only_spec = pod(spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]})
    for old in (USING, only_spec):
        assert of_pod(USING, old, GateSet(frozenset())) == (USING, [])


def test_inline_templates_belong_to_the_classic_path():
    template = {"spec": {"resourceClassName": "gpu"}}
    new = pod(
        spec={
            "resourceClaims": [{"name": "a", "template": template}, {"name": "b", "resourceClaimName": "b"}]
        }
    )
    left, gone = of_pod(new, None, off("DRAControlPlaneController"))
    assert left == pod(spec={"resourceClaims": [{"name": "a"}, {"name": "b", "resourceClaimName": "b"}]})
    assert gone == ["spec.resourceClaims[0].template"]


@pytest.mark.parametrize(
    "junk",
    [
        pod(),
        pod(spec=None),
        pod(spec={"containers": [None, 1, "x", {}, {"resources": None}]}),
        pod(spec=[]),
        {},
    ],
)
def test_invalid_pods_are_searched_for_gated_fields(junk):
    assert of_pod(junk, junk, GateSet(frozenset())) == (junk, [])


def test_whole_kinds_are_served_only_with_their_gate():
    nothing = GateSet(frozenset())
    shut = {kind.qualified_name: find_disabling_gate(kind, nothing) for kind in KINDS}
    assert {name for name, gate in shut.items() if gate == "DynamicResourceAllocation"} == {
        kind.qualified_name for kind in KINDS if kind.group == "resource.k8s.io"
    }
    assert {name for name, gate in shut.items() if gate == "DRAControlPlaneController"} == {
        "ResourceClass.cdi.k8s.io",
        "ResourceClaim.cdi.k8s.io",
    }
    assert all(gate is None for name, gate in shut.items() if ".k8s.io" not in name)
    assert all(find_disabling_gate(kind, ALL_ON) is None for kind in KINDS)
    classic = find_kind("cdi.k8s.io", "ResourceClaim")
    assert classic is not None
    assert find_disabling_gate(classic, off("DRAControlPlaneController")) == "DRAControlPlaneController"
    rules = find_kind("resource.k8s.io", "DeviceTaintRule")
    assert rules is not None
    for gate in ("DRADeviceTaints", "DRADeviceTaintRules"):
        assert find_disabling_gate(rules, off(gate)) == gate


def test_dropped_fields_are_reported_in_the_order_of_the_gates():
    new = a_slice({**SHARED, "taints": [{"key": "k", "effect": "NoSchedule"}]}, priority=3)
    _, gone = dropped(new, None, GateSet(frozenset({"DynamicResourceAllocation"})))
    order = list(GATES)
    assert [order.index(field.gate) for field in gone] == sorted(order.index(field.gate) for field in gone)
    assert len(gone) == 4
