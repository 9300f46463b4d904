"""Replays recorded scenarios without a cluster: the allocator must give what a cluster gave its pods.

Only scenarios of one step and one pod are replayed, and only what the allocator decides: which devices the
pod's claims got on the node that the cluster chose, or that no node has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

from dray.allocator.allocate import SuccessfulAllocation, allocate
from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.usage import DeviceUsage
from dray.api.core import Node
from dray.api.json_text import read_json, write_json
from dray.api.meta import ObjectMeta
from dray.errors import UnanswerableClaimError
from tests.cases.allocator_notation import Document, made
from tests.differential.cluster_side import replace_values
from tests.differential.scenario import Scenario

UNSCHEDULABLE = ["False Unschedulable"]
PLACED = ["True"]
ONLY_DEVICES = {"containers", "resourceClaims", "terminationGracePeriodSeconds"}
"""What the spec of a pod may have here: with anything else, more than devices decides."""


@dataclass(frozen=True)
class RecordedOutcome:
    """What a cluster did with the pod of a scenario: its node and the allocations of its claims, or none."""

    node: str
    allocations: dict[str, Document]


def read_outcome(scenario: Scenario, pictures: list[Any]) -> RecordedOutcome | None:
    """Read the recorded outcome of a scenario that the allocator alone decides; None for any other."""
    if len(scenario.steps) != 1 or len(pictures) != 1 or scenario.decided or "pods" not in pictures[0]:
        return None
    if any(each["kind"] == "DeviceTaintRule" for each in scenario.objects):
        return None
    step, (picture,) = scenario.steps[0], pictures
    pods = [each for each in step.create if each["kind"] == "Pod"]
    if len(pods) != 1 or step.patch or step.delete or len(picture["pods"]) != 1:
        return None
    (pod,), (seen,) = pods, picture["pods"].values()
    if not pod["spec"].keys() <= ONLY_DEVICES or seen["claims"] or not pod["spec"]["resourceClaims"]:
        return None
    if seen["scheduled"] not in (PLACED, UNSCHEDULABLE):
        return None
    allocations = {
        name: claim["status"]["allocation"]
        for name, claim in picture["claims"].items()
        if "allocation" in claim.get("status", {})
    }
    return RecordedOutcome(seen["node"], allocations)


def replay(scenario: Scenario, outcome: RecordedOutcome) -> dict[str, Document]:
    """Allocate the claims of the pod; nothing when no node (or not the recorded one) has devices for them."""
    pod = next(each for each in scenario.steps[0].create if each["kind"] == "Pod")
    named = [entry["resourceClaimName"] for entry in pod["spec"]["resourceClaims"]]
    kinds: dict[str, list[Any]] = {"ResourceClaim": [], "ResourceSlice": [], "DeviceClass": []}
    for document in scenario.objects:
        if document["kind"] in kinds:
            kinds[document["kind"]].append(made(document))
    gates = AllocatorGateFilter.from_overrides({})
    slices = tuple(gates.admit_slices(kinds["ResourceSlice"]))
    inventory = DeviceInventory(
        slices, kinds["DeviceClass"], DeviceUsage.from_claims(()), gates.build_selector_evaluator()
    )
    claims = {claim.metadata.name: claim for claim in kinds["ResourceClaim"]}
    share_ids = (f"00000000-0000-4000-8000-{number:012x}" for number in count())
    for node in _read_nodes(scenario):
        if outcome.node not in ("", node.metadata.name):
            continue
        try:
            asked = gates.admit_claims([claims[name] for name in named])
            answer = allocate(inventory, asked, node, new_share_id=lambda: next(share_ids))
        except UnanswerableClaimError:
            return {}
        if isinstance(answer, SuccessfulAllocation):
            found = [_to_document(result) for result in answer.results]
            return dict(zip(named, found, strict=True))
    return {}


def _read_nodes(scenario: Scenario) -> list[Node]:
    metadata = [each["metadata"] for each in scenario.objects if each["kind"] == "Node"]
    return [Node(metadata=ObjectMeta(name=each["name"], labels=each["labels"])) for each in metadata]


def _to_document(allocation: Any) -> Document:
    document: Document = replace_values(read_json(write_json(allocation)), {})
    return {**document, "allocationTimestamp": "set"}
