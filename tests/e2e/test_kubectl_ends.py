"""kubectl ends things: deletes in every way, waits for it, drains nodes, removes namespaces."""

from __future__ import annotations

import json

from tests.contract.documents import claim, config, node, owner, pod
from tests.e2e.kubectl import Kubectl


def _family(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "parent")
    parent = kubectl.get("cm", "parent")
    child = config("child", kubectl.namespace, ownerReferences=[owner(parent, blockOwnerDeletion=True)])
    kubectl("create", "-f", "-", given=child)


def test_dependents_go_in_the_background_by_default(kubectl: Kubectl) -> None:
    _family(kubectl)
    kubectl("delete", "cm", "parent")
    kubectl("wait", "--for=delete", "cm/child", "--timeout=10s")


def test_dependents_go_first_in_the_foreground(kubectl: Kubectl) -> None:
    _family(kubectl)
    kubectl("delete", "cm", "parent", "--cascade=foreground")
    assert kubectl("get", "cm", "-o", "name").out == ""


def test_dependents_stay_as_orphans(kubectl: Kubectl) -> None:
    _family(kubectl)
    kubectl("delete", "cm", "parent", "--cascade=orphan")
    assert "ownerReferences" not in kubectl.get("cm", "child")["metadata"]


def test_a_delete_waits_for_finalizers(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given=claim("c", kubectl.namespace, finalizers=["example.com/hold"]))
    kubectl("delete", "resourceclaim", "c", "--wait=false")
    header, row = kubectl("get", "resourceclaims").rows
    assert header[1] == "STATE"
    assert "deleted" in row[1]
    with kubectl.beside("wait", "--for=delete", "resourceclaim/c", "--timeout=20s") as waiting:
        kubectl("patch", "resourceclaim", "c", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        assert waiting.wait(20) == 0


def test_waits_see_changes_to_come(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given=pod("p", kubectl.namespace))
    until = ("wait", "--for=jsonpath={.status.phase}=Running", "pod/p", "--timeout=20s")
    with kubectl.beside(*until) as waiting:
        kubectl("patch", "pod", "p", "--subresource=status", "-p", '{"status":{"phase":"Running"}}')
        assert waiting.wait(20) == 0
    late = kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=1s", fails=True)
    assert "timed out" in late.err


def _bound(kubectl: Kubectl, name: str, node_name: str) -> None:
    document = pod(name, kubectl.namespace)
    document["spec"]["nodeName"] = node_name
    kubectl("create", "-f", "-", given=document)


def test_a_bound_pod_is_deleted_gracefully_or_by_force(kubectl: Kubectl) -> None:
    _bound(kubectl, "p", "node-x")
    kubectl("delete", "pod", "p", "--grace-period=7", "--wait=false")
    assert kubectl.get("pod", "p")["metadata"]["deletionGracePeriodSeconds"] == 7
    assert kubectl("get", "pod", "p").rows[1][2] == "Terminating"
    kubectl("delete", "pod", "p", "--force", "--grace-period=0")
    kubectl("get", "pod", "p", fails=True)
    _bound(kubectl, "q", "node-x")
    kubectl("delete", "pod", "q", "--now", "--wait=false")
    assert kubectl.get("pod", "q")["metadata"]["deletionGracePeriodSeconds"] == 1


def test_nodes_are_tainted_cordoned_and_drained(kubectl: Kubectl) -> None:
    name = f"node-{kubectl.namespace}"
    kubectl("create", "-f", "-", given=node(name))
    kubectl("taint", "node", name, "broken=fan:NoSchedule")
    assert kubectl.get("node", name)["spec"]["taints"][0]["key"] == "broken"
    kubectl("taint", "node", name, "broken-")
    assert "taints" not in kubectl.get("node", name).get("spec", {})
    kubectl("cordon", name)
    assert kubectl.get("node", name)["spec"]["unschedulable"] is True
    assert "SchedulingDisabled" in kubectl("get", "node", name).rows[1][1]
    kubectl("uncordon", name)
    _bound(kubectl, "p", name)
    with kubectl.beside("drain", name, "--force", "--timeout=20s") as draining:
        kubectl("wait", "--for=jsonpath={.metadata.deletionTimestamp}", "pod/p", "--timeout=10s")
        kubectl("delete", "pod", "p", "--force", "--grace-period=0")  # what the node does when it has ended
        assert draining.wait(20) == 0
    assert kubectl.get("node", name)["spec"]["unschedulable"] is True


def test_selections_and_files_are_deleted(kubectl: Kubectl) -> None:
    given = [config(f"c{n}", kubectl.namespace, labels={"odd": str(n % 2)}) for n in range(4)]
    kubectl("create", "-f", "-", given=given)
    kubectl("delete", "cm", "-l", "odd=1")
    assert kubectl("get", "cm", "-o", "name").out.split() == ["configmap/c0", "configmap/c2"]
    kubectl("delete", "-f", "-", "--ignore-not-found", given=given[:2])
    assert kubectl("get", "cm", "-o", "name").out.split() == ["configmap/c2"]
    kubectl("delete", "cm", "--all")
    assert kubectl("get", "cm", "-o", "name").out == ""
    assert "not found" in kubectl("delete", "cm", "nope", fails=True).err


def test_a_namespace_is_deleted_with_its_contents(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given=[config("m", kubectl.namespace), claim("c", kubectl.namespace)])
    kubectl("delete", "namespace", kubectl.namespace)
    assert kubectl("get", "cm,resourceclaims", "-o", "name").out == ""
    assert "not found" in kubectl("create", "configmap", "late", fails=True).err


def test_what_is_no_longer_applied_is_pruned(kubectl: Kubectl) -> None:
    both = [config(name, kubectl.namespace, labels={"set": "one"}) for name in ("a", "b")]
    allowed = "--prune-allowlist=core/v1/ConfigMap"
    kubectl("apply", "-f", "-", given=both)
    kubectl("apply", "--prune", "-l", "set=one", allowed, "-f", "-", given=both[0])
    assert kubectl("get", "cm", "-o", "name").out.split() == ["configmap/a"]


def test_preconditions_of_a_delete(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "m")
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "another"}}
    where = f"/api/v1/namespaces/{kubectl.namespace}/configmaps/m"
    refused = kubectl("delete", "--raw", where, "-f", "-", given=json.dumps(options), fails=True)
    assert "Conflict" in refused.err or "precondition" in refused.err.lower()
