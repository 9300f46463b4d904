"""Why a pod has no node, in one line."""

from __future__ import annotations

from dray.explain import run_to_end, summarize
from dray.placement.rejections import PluginRejection
from dray.placement.scheduling_cycle import RejectedNodes, Unschedulable, place_pod
from dray.placement.unschedulable_message import (
    MAX_MESSAGE_LENGTH,
    diagnose_devices,
    explain_unschedulable,
    format_node_names,
)
from tests.brute import builders as make
from tests.property.test_placement_law import OPEN
from tests.unit.placement.claim_objects import claim, cluster, devices_only, having, models, wanting


def refused(subject: object, snapshot: object) -> Unschedulable:
    _, profile = devices_only()
    found = place_pod(snapshot, subject, profile)  # type: ignore[arg-type]
    assert isinstance(found, Unschedulable)
    return found


def test_the_message_about_devices_is_that_of_the_explanation() -> None:
    found = refused(wanting(claim()), cluster({"a": ()}))
    told = run_to_end(diagnose_devices(found, OPEN))
    assert told is not None
    assert explain_unschedulable(found, OPEN) == summarize(told)
    assert explain_unschedulable(found, OPEN) == explain_unschedulable(
        refused(wanting(claim()), cluster({"a": ()})), OPEN
    )


def test_the_message_of_an_empty_cluster() -> None:
    assert explain_unschedulable(refused(wanting(claim()), cluster({})), OPEN) == "there are no nodes"


def test_a_claim_with_devices_elsewhere_is_reported_with_its_nodes() -> None:
    subject = wanting(having(claim(), "z/d0", where="z"))
    found = refused(subject, cluster({"a": (), "b": (), "c": ()}))
    assert explain_unschedulable(found, OPEN) == "a, b and 1 more: claim ml/c has its devices elsewhere"


def test_a_claim_called_elsewhere_is_explained_all_the_same() -> None:
    found = refused(wanting(claim(name="elsewhere")), cluster({"a": ()}))
    assert "no node can satisfy claim ml/elsewhere" in explain_unschedulable(found, OPEN)


def test_other_plugins_follow_the_devices() -> None:
    found = refused(wanting(claim()), cluster({"a": ()}))
    full = RejectedNodes(PluginRejection("NodeResourcesFit", "too little cpu"), ("x", "y"))
    both = Unschedulable(found.pending_pod, (*found.rejected, full), found.snapshot)
    assert explain_unschedulable(both, OPEN) == f"{explain_unschedulable(found, OPEN)}; x, y: too little cpu"


def test_a_verdict_about_the_whole_cluster_stands_alone() -> None:
    asked = claim(make.request("r", device_class="missing"))
    found = refused(wanting(asked), cluster({"a": models("x")}))
    assert "missing" in explain_unschedulable(found, OPEN)
    assert run_to_end(diagnose_devices(found, OPEN)) is None


def test_it_fits_into_an_event() -> None:
    found = refused(wanting(claim()), cluster({"a": ()}))
    long = RejectedNodes(PluginRejection("Stub", "x" * 3000), ("a",))
    text = explain_unschedulable(
        Unschedulable(found.pending_pod, (*found.rejected, long), found.snapshot), OPEN
    )
    assert len(text) == MAX_MESSAGE_LENGTH
    assert text.endswith("…")


def test_many_nodes_are_counted() -> None:
    assert format_node_names(["a"]) == "a"
    assert format_node_names(["a", "b"]) == "a, b"
    assert format_node_names(list("abcd")) == "a, b and 2 more"
