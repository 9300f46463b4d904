"""The status of a classic claim carries the whole negotiation, and nothing of it is lost or mixed up."""

from __future__ import annotations

import pytest

from dray.api.classic import ClassicResourceClaim
from dray.api.codec import decode_document, to_document
from dray.api.validation import validate_status_update

SELECTOR = {
    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]
}


def claim(**status: object) -> ClassicResourceClaim:
    document = {
        "apiVersion": "cdi.k8s.io/v1alpha1",
        "kind": "ResourceClaim",
        "metadata": {"name": "fpga", "namespace": "ns", "resourceVersion": "1"},
        "spec": {"resourceClassName": "fpga", "allocationMode": "Delayed"},
        "status": {"phase": "Pending", "userLimit": 1, **status},
    }
    decoded = decode_document(document)
    assert not decoded.unknown_fields
    assert to_document(decoded.object)["status"] == document["status"]
    return decoded.object


@pytest.mark.req("K3063-083", "K3063-085", "K3063-087", "K3063-089")
def test_scheduler_and_driver_each_have_their_part():
    found = claim(
        scheduling={
            "scheduler": {"selectedNode": "n2", "potentialNodes": ["n1", "n2"]},
            "driver": {"unsuitableNodes": ["n1"], "availableOnNodes": SELECTOR},
        }
    ).status.scheduling
    assert found is not None
    assert found.scheduler.selected_node == "n2"
    assert found.scheduler.potential_nodes == ("n1", "n2")
    assert found.driver.unsuitable_nodes == ("n1",)
    assert found.driver.available_on_nodes is not None
    assert found.driver.available_on_nodes.matches("n2", {})
    assert not found.driver.available_on_nodes.matches("n1", {})


@pytest.mark.req("K3063-072", "K3063-089")
def test_the_nodes_of_the_resource_stay_after_the_negotiation():
    during = claim(scheduling={"driver": {"availableOnNodes": SELECTOR}}).status
    after = claim(phase="Allocated", driverName="d.example.com", availableOnNodes=SELECTOR).status
    nowhere_said = claim(phase="Allocated", driverName="d.example.com").status
    assert during.get_reachable_nodes() == after.get_reachable_nodes()
    assert after.scheduling is None
    assert nowhere_said.get_reachable_nodes() is None, "not said is everywhere"


@pytest.mark.req("K3063-073", "K3063-076")
def test_what_the_driver_returned_and_who_may_use_it_can_be_written():
    consumer = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    before = claim()
    after = claim(
        phase="Allocated",
        driverName="d.example.com",
        attributes={"card": "0", "region/β": "any text: {}"},
        reservedFor=[consumer],
    )
    assert validate_status_update(after, before) == []
    assert after.status.attributes["region/β"] == "any text: {}"
    assert [ref.name for ref in after.status.reserved_for] == ["p"]
