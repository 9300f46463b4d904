"""The verifier: texts of findings, and independence of the search. tests/property prove what it finds."""

from __future__ import annotations

import ast

from dray.allocator.feature_gates import admit_slices
from dray.allocator.verify import AllocationFinding, AllocationRule, VerificationInput, verify
from tests.brute.builders import claim, device, device_class, holding, node, published, request, result
from tests.brute.outcome import allocated, world
from tests.brute.toy_selectors import evaluate_toy
from tests.outside import ROOT
from tests.property.strategies.api import without


def test_the_verifier_shares_nothing_with_the_search():
    own = ROOT / "src" / "dray" / "allocator" / "verify"
    imported = set()
    for path in own.glob("*.py"):
        for step in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(step, ast.ImportFrom):
                imported.add(step.module or "")
            elif isinstance(step, ast.Import):
                imported.update(alias.name for alias in step.names)
    assert imported
    ours = {name for name in imported if name.startswith("dray.allocator")}
    ours.discard("dray.allocator.withheld_devices")  # what admission marks; both sides are given it
    assert all(name.startswith("dray.allocator.verify") for name in ours)


def test_a_finding_is_a_sentence():
    assert str(AllocationFinding(AllocationRule.DEVICE, "ml/claim", "is odd")) == "claim ml/claim: is odd"
    assert str(AllocationFinding(AllocationRule.CLAIMS, "", "two are missing")) == "two are missing"


SLICES = (published(device("a", shared=True, capacity={"mem": 4}), device("b", numa=1)),)


def judgement(*claims, held=(), slices=SLICES):
    """What the verifier finds in a valid allocation after the cluster changed."""
    results = allocated(world(SLICES, *claims))
    given = VerificationInput(tuple(slices), (device_class(),), tuple(held), node(), evaluate_toy)
    return [str(finding) for finding in verify(given, claims, results)]


def test_sound_allocations_have_no_findings():
    assert judgement(claim(request("r0", 1, "shared", capacity={"mem": 1}), request("r1", 1, "single"))) == []
    assert judgement() == []


def test_findings_tell_what_where_and_how_much():
    asked = claim(request("r", 1, "shared", capacity={"mem": 3}))
    held = [holding(result("a", share="id", consumed={"mem": 2}))]
    assert judgement(asked, held=held) == [
        "claim ml/claim: shares of device gpu.example/pool/a consume 5 of `mem`, there is 4"
    ]
    gone = [published(device("b"), count=2)]
    found = judgement(asked, slices=gone)
    assert found == [
        "claim ml/claim: device gpu.example/pool/a cannot be used: it is incomplete: 1 of 2 slices",
        "claim ml/claim: its node selector is not that of its devices on node `n1`",
    ]


def test_claims_without_allocations_are_counted():
    given = VerificationInput(SLICES, (device_class(),), (), node(), evaluate_toy)
    (found,) = verify(given, [claim(request("r"))], [])
    assert (found.rule, str(found)) == (
        AllocationRule.CLAIMS,
        "1 claims have 0 allocations; expected one each",
    )


def test_a_withheld_device_is_named_with_its_gate():
    slices = published(device("a", binding_conditions=("Ready",)), device("b", numa=1))
    results = allocated(world([slices], claim(request("r"))))
    admitted = admit_slices([slices], without("DRADeviceBindingConditions"))
    given = VerificationInput(tuple(admitted), (device_class(),), (), node(), evaluate_toy)
    first = verify(given, [claim(request("r"))], results)[0]
    assert str(first) == (
        "claim ml/claim: device gpu.example/pool/a cannot be used: it needs binding conditions, "
        "but feature gate DRADeviceBindingConditions is off"
    )


def test_a_hidden_device_is_named_with_its_gate():
    slices = published(device("a", node_name="n1"), per_device_node_selection=True)
    results = allocated(world([slices], claim(request("r"))))
    admitted = admit_slices([slices], without("DRAPartitionableDevices"))
    given = VerificationInput(tuple(admitted), (device_class(),), (), node(), evaluate_toy)
    assert str(verify(given, [claim(request("r"))], results)[0]) == (
        "claim ml/claim: device gpu.example/pool/a cannot be used: its slice has partitions, "
        "but feature gate DRAPartitionableDevices is off"
    )
