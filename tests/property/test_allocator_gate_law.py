"""Gates of the allocator: behind a closed gate a claim is refused by the gate's name, or its field is
ignored.

Admitted objects have no field of a closed gate, except in devices that are withheld and in what restricts a
device to a node; admitting them again under any gates changes nothing; and objects without fields of the gate
pass unchanged. Closing a gate hides devices from new claims, never from the accounting: an allocation behind
it takes nothing that is in use.
"""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.allocator import feature_gates
from dray.allocator.feature_gates import admit_claims, admit_slices
from dray.allocator.verify import AllocationRule as VerifiedRule
from dray.allocator.verify import VerificationInput, verify
from dray.allocator.withheld_devices import WithheldDevice
from dray.api import field_patterns
from dray.api.kinds import get_kind_by_type
from dray.api.resource import ResourceClaim, ResourceSlice
from dray.api.strategies.gated_fields import GATED_FIELDS
from dray.errors import UnanswerableClaimError
from dray.gates import GATES, GateSet
from tests.brute.generators import draw
from tests.brute.laws import results_of
from tests.brute.outcome import world
from tests.brute.toy_selectors import evaluate_toy
from tests.property.strategies.api import gate_sets, objects, without
from tests.property.strategies.problems import problems

SLICES, CLAIMS = get_kind_by_type(ResourceSlice), get_kind_by_type(ResourceClaim)
OPEN = GateSet(frozenset(GATES))


def gated(gate, kind):
    """The fields of a gate that the allocator reads in a kind of object."""
    fields = GATED_FIELDS.get(gate, {}).get(kind.qualified_name, ())
    return [field for field in fields if field.startswith("spec.")]


def uses(obj, gate, kind):
    return any(field_patterns.find_fields(obj, field) for field in gated(gate, kind))


def had_by_new_claims(published):
    """A slice with the devices that new claims can get, wherever these are."""
    devices = tuple(
        msgspec.structs.replace(device, binds_to_node=None)
        for device in published.spec.devices
        if not isinstance(device, WithheldDevice)
    )
    return msgspec.structs.replace(published, spec=msgspec.structs.replace(published.spec, devices=devices))


def admit(claims, gates):
    """What is let in, and what was said instead."""
    try:
        return admit_claims(claims, gates), ""
    except UnanswerableClaimError as fault:
        return [], str(fault)


@pytest.mark.parametrize("gate", GATES)
@given(data=st.data())
def test_slices_behind_a_closed_gate_lose_its_fields(gate, data):
    published = data.draw(objects(SLICES))
    gates = without(gate)
    (admitted,) = admit_slices([published], gates)
    closed = [name for name in GATES if not gates.is_enabled(name)]
    assert not any(uses(had_by_new_claims(admitted), name, SLICES) for name in closed)
    assert admit_slices([admitted], OPEN) == [admitted]
    assert admit_slices([admitted], gates) == [admitted]
    if not any(uses(published, name, SLICES) for name in closed):
        assert admitted == published


@pytest.mark.parametrize("gate", GATES)
@given(data=st.data())
def test_claims_behind_a_closed_gate_are_refused_or_lose_the_field(gate, data):
    asked = data.draw(objects(CLAIMS))
    gates = without(gate)
    closed = [name for name in GATES if not gates.is_enabled(name)]
    used = [name for name in closed if uses(asked, name, CLAIMS)]
    admitted, fault = admit([asked], gates)
    if fault:
        assert any(name in fault for name in used)
        return
    assert not any(uses(admitted[0], name, CLAIMS) for name in closed)
    assert admit_claims(admitted, OPEN) == admitted
    if not used:
        assert admitted[0] is asked


ACCOUNTS = {VerifiedRule.IN_USE, VerifiedRule.TWICE, VerifiedRule.CAPACITY, VerifiedRule.COUNTERS}

HELD = ("held", "counters", "shares", "binding", "per_device")
"""Features of problems in which closing a gate could make somebody forget what is held."""

held_problems = st.randoms(use_true_random=False).map(lambda source: draw(source, always=HELD))


def handed_out_twice(gate, problem):
    """What an allocation behind a closed gate takes that is held, seen with every gate open."""
    gates = without(gate)
    claims, fault = admit(problem.claims, gates)
    if fault:
        return []
    slices = admit_slices(problem.slices, gates)
    admitted = world(slices, *claims, held=problem.held, classes=problem.classes, nodes=problem.nodes)
    found = results_of(admitted)
    if found is None:
        return []
    seen_open = VerificationInput(problem.slices, problem.classes, problem.held, problem.node, evaluate_toy)
    return [said for said in verify(seen_open, claims, found) if said.rule in ACCOUNTS]


@pytest.mark.parametrize("gate", GATES)
@given(problem=problems | held_problems)
def test_closing_a_gate_never_makes_more_available(gate, problem):
    assert handed_out_twice(gate, problem) == []


def forgetting(admitted, published, closed):
    """Admission as it must not be: devices that need a closed gate are left out of their slices."""
    kept = tuple(
        now
        for now, before in zip(admitted.spec.devices, published.spec.devices, strict=False)
        if not before.binding_conditions
    )
    return msgspec.structs.replace(admitted, spec=msgspec.structs.replace(admitted.spec, devices=kept))


def test_the_property_detects_an_admission_that_drops_devices_in_use(monkeypatch):
    monkeypatch.setattr(feature_gates, "_withhold_devices", forgetting)
    problems_drawn = (draw(Random(f"forgetting/{number}"), always=HELD) for number in range(600))
    assert any(handed_out_twice("DRADeviceBindingConditions", problem) for problem in problems_drawn)


@given(problem=problems, gates=gate_sets())
def test_no_choice_of_gates_breaks_the_allocator(problem, gates):
    """Any problem under any gates has an answer or a fault that names a gate, and the same one each time."""
    claims, fault = admit(problem.claims, gates)
    if fault:
        assert any(name in fault for name in GATES if not gates.is_enabled(name))
        return
    slices = admit_slices(problem.slices, gates)
    admitted = world(slices, *claims, held=problem.held, classes=problem.classes, nodes=problem.nodes)
    assert results_of(admitted) == results_of(admitted)


def test_some_gate_changes_some_result():
    """The law is not empty: under closed gates problems are answered differently."""
    changed: set[str] = set()
    for number in range(300):
        problem = draw(Random(f"gates/{number}"))
        for gate in set(GATES) - changed:
            gates = without(gate)
            slices = admit_slices(problem.slices, gates)
            claims, fault = admit(problem.claims, gates)
            admitted = world(slices, *claims, held=problem.held, classes=problem.classes, nodes=problem.nodes)
            if fault or results_of(admitted) != results_of(problem):
                changed.add(gate)
    assert changed >= {
        "DRAPrioritizedList",
        "DRAConsumableCapacity",
        "DRAListTypeAttributes",
        "DRAResourceSlicePriority",
        "DRAPartitionableDevices",
        "DRAAdminAccess",
        "DRADeviceTaints",
        "DRADeviceBindingConditions",
    }
