"""kubectl writes: apply in both ways, patches, edits, differences, replacements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dray.api.kinds import parse_document_kind
from tests.contract.documents import claim, config, device_class, node, pod, resource_slice, template
from tests.contract.recorded_defaults import read_cases
from tests.e2e.kubectl import Kubectl


def _everything(kubectl: Kubectl) -> list[dict[str, Any]]:
    name = f"node-{kubectl.namespace}"
    home = {"metadata": {"name": "t", "namespace": kubectl.namespace}}
    return [
        device_class(),
        node(name),
        resource_slice(f"{name}-gpu", name),
        claim("c", kubectl.namespace),
        template("t") | home,
        pod("p", kubectl.namespace, claim_name="c"),
        config("m", kubectl.namespace),
        *_workloads(kubectl.namespace),
    ]


def _workloads(namespace: str) -> list[dict[str, Any]]:
    """Objects of which the server stores far more than was written."""
    given = [case.given for name in ("workloads", "network") for case in read_cases(name)]
    return [
        {**document, "metadata": {**document["metadata"], "namespace": namespace}}
        for document in given
        if parse_document_kind(document)[0].namespaced
    ]


@pytest.mark.parametrize("way", [["apply"], ["apply", "--server-side"]], ids=["client-side", "server-side"])
def test_everything_is_applied_twice(kubectl: Kubectl, way: list[str]) -> None:
    given = _everything(kubectl)
    first = kubectl(*way, "-f", "-", given=given).out.splitlines()
    assert len(first) == len(given)
    versions = ("get", "-f", "-", "-o", "jsonpath={.items[*].metadata.resourceVersion}")
    before = kubectl(*versions, given=given).out
    kubectl(*way, "-f", "-", given=given)
    assert kubectl(*versions, given=given).out == before, "an apply without changes writes nothing"
    assert kubectl("diff", *way[1:], "-f", "-", given=given).out == ""


def test_an_apply_changes_adds_and_takes_away(kubectl: Kubectl) -> None:
    document = config("m", kubectl.namespace) | {"data": {"a": "1", "b": "2"}}
    kubectl("apply", "-f", "-", given=document)
    kubectl("patch", "cm", "m", "--type=merge", "-p", '{"data":{"theirs":"x"}}')
    kubectl("apply", "-f", "-", given=document | {"data": {"a": "3"}})
    assert kubectl.get("cm", "m")["data"] == {"a": "3", "theirs": "x"}


def test_a_server_side_apply_owns_fields(kubectl: Kubectl) -> None:
    document = config("m", kubectl.namespace) | {"data": {"a": "1", "b": "2"}}
    kubectl("apply", "--server-side", "-f", "-", given=document)
    kubectl("apply", "--server-side", "-f", "-", given=document | {"data": {"a": "1"}})
    assert kubectl.get("cm", "m")["data"] == {"a": "1"}
    other = ("apply", "--server-side", "--field-manager=other", "-f", "-")
    lost = kubectl(*other, given=document | {"data": {"a": "9"}}, fails=True)
    assert "conflict" in lost.err.lower()
    assert ".data.a" in lost.err
    kubectl(*other, "--force-conflicts", given=document | {"data": {"a": "9"}})
    assert kubectl.get("cm", "m")["data"] == {"a": "9"}


def test_client_side_becomes_server_side(kubectl: Kubectl) -> None:
    document = config("m", kubectl.namespace) | {"data": {"a": "1", "b": "2"}}
    kubectl("apply", "-f", "-", given=document)
    kubectl("apply", "--server-side", "-f", "-", given=document | {"data": {"b": "2"}})
    assert kubectl.get("cm", "m")["data"] == {"b": "2"}


def test_differences_are_shown_and_dry_runs_change_nothing(kubectl: Kubectl) -> None:
    document = config("m", kubectl.namespace)
    kubectl("apply", "-f", "-", given=document)
    changed = document | {"data": {"key": "other"}}
    diff = kubectl("diff", "-f", "-", given=changed, fails=True)
    assert "-  key: value" in diff.out
    assert "+  key: other" in diff.out
    server_side = kubectl("diff", "--server-side", "--force-conflicts", "-f", "-", given=changed, fails=True)
    assert "+  key: other" in server_side.out
    kubectl("apply", "--dry-run=server", "-f", "-", given=changed)
    kubectl("create", "--dry-run=server", "-f", "-", given=config("n", kubectl.namespace))
    kubectl("delete", "--dry-run=server", "cm", "m")
    assert kubectl.get("cm", "m")["data"] == {"key": "value"}
    assert "n" not in kubectl("get", "cm", "-o", "name").out.split("/")
    new = kubectl("diff", "-f", "-", given=config("n", kubectl.namespace), fails=True)
    assert "+kind: ConfigMap" in new.out


def test_patches_of_every_type(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given=[pod("p", kubectl.namespace), config("m", kubectl.namespace)])
    kubectl("patch", "cm", "m", "--type=json", "-p", '[{"op":"add","path":"/data/b","value":"2"}]')
    kubectl("patch", "cm", "m", "--type=merge", "-p", '{"data":{"key":null}}')
    assert kubectl.get("cm", "m")["data"] == {"b": "2"}
    image = {"spec": {"containers": [{"name": "c", "image": "pause:4"}]}}
    kubectl("patch", "pod", "p", "-p", json.dumps(image))
    (container,) = kubectl.get("pod", "p")["spec"]["containers"]
    assert (container["image"], container["terminationMessagePolicy"]) == ("pause:4", "File")
    bad = kubectl(
        "patch", "cm", "m", "--type=json", "-p", '[{"op":"test","path":"/data/b","value":"3"}]', fails=True
    )
    assert "b" in bad.err


def test_a_status_is_patched_by_itself(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given=pod("p", kubectl.namespace))
    patch = '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl("patch", "pod", "p", "--subresource=status", "-p", patch)
    assert kubectl("get", "pod", "p", "--subresource=status").rows[1][2] == "Running"
    kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=10s")
    kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/p", "--timeout=10s")


def test_labels_and_annotations(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given=claim("c", kubectl.namespace))
    kubectl("label", "resourceclaim", "c", "a=b", "x=y")
    kubectl("label", "resourceclaim", "c", "a=c", "--overwrite")
    kubectl("label", "resourceclaim", "c", "x-")
    kubectl("annotate", "resourceclaim", "c", "note=why not")
    metadata = kubectl.get("resourceclaim", "c")["metadata"]
    assert metadata["labels"] == {"a": "c"}
    assert metadata["annotations"] == {"note": "why not"}
    kubectl("label", "resourceclaims", "--all", "all=yes")
    assert kubectl.get("resourceclaim", "c")["metadata"]["labels"]["all"] == "yes"


def _editor(folder: Path, script: str) -> str:
    program = folder / "editor.sh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    return str(program)


def test_edits(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("apply", "-f", "-", given=config("m", kubectl.namespace))
    change = _editor(tmp_path, 'sed -i "s/key: value/key: edited/" "$1"')
    assert "edited" in kubectl("edit", "cm", "m", KUBE_EDITOR=change).out
    assert kubectl.get("cm", "m")["data"] == {"key": "edited"}
    nothing = _editor(tmp_path, "true")
    assert "no changes" in (kubectl("edit", "cm", "m", KUBE_EDITOR=nothing).err + "").lower()
    kubectl("apply", "-f", "-", given=claim("c", kubectl.namespace))
    annotate = _editor(tmp_path, 'sed -i "s/^  name: c$/  name: c\\n  labels: {edited: \\"yes\\"}/" "$1"')
    kubectl("edit", "resourceclaim", "c", KUBE_EDITOR=annotate)
    assert kubectl.get("resourceclaim", "c")["metadata"]["labels"] == {"edited": "yes"}


def test_replacements(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given=config("m", kubectl.namespace))
    kubectl("replace", "-f", "-", given=config("m", kubectl.namespace) | {"data": {"new": "1"}})
    stored = kubectl.get("cm", "m")
    assert stored["data"] == {"new": "1"}
    kubectl("label", "cm", "m", "moved=on")
    assert "modified" in kubectl("replace", "-f", "-", given=stored, fails=True).err
    kubectl("replace", "--force", "-f", "-", given=config("m", kubectl.namespace))
    assert kubectl.get("cm", "m")["metadata"]["uid"] != stored["metadata"]["uid"]


def test_typos_are_refused_and_invalid_objects_explained(kubectl: Kubectl) -> None:
    typo = claim("c", kubectl.namespace)
    typo["spec"]["devices"]["requets"] = []
    assert 'unknown field "spec.devices.requets"' in kubectl("create", "-f", "-", given=typo, fails=True).err
    warned = kubectl("create", "--validate=warn", "-f", "-", given=typo)
    assert 'Warning: unknown field "spec.devices.requets"' in warned.err
    bad = claim("d", kubectl.namespace, requests=[{"name": "A", "exactly": {}}])
    refused = kubectl("create", "-f", "-", given=bad, fails=True).err
    assert "spec.devices.requests[0].name: Invalid value" in refused
    assert "spec.devices.requests[0].exactly.deviceClassName: Required value" in refused
    again = kubectl("create", "-f", "-", given=claim("c", kubectl.namespace), fails=True)
    assert "already exists" in again.err


def test_objects_are_made_from_words(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "m", "--from-literal=a=b")
    assert kubectl.get("cm", "m")["data"] == {"a": "b"}
    kubectl("create", "secret", "generic", "s", "--from-literal=password=x")
    assert kubectl.get("secret", "s")["data"] == {"password": "eA=="}
    kubectl("create", "serviceaccount", "robot")
    assert kubectl("create", "token", "robot").out.count(".") == 2
    kubectl("run", "p", "--image=pause:3", "--restart=Never")
    assert kubectl.get("pod", "p")["spec"]["restartPolicy"] == "Never"
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods")
    kubectl(
        "create", "rolebinding", "readers", "--role=reader", f"--serviceaccount={kubectl.namespace}:robot"
    )
    robot = f"--as=system:serviceaccount:{kubectl.namespace}:robot"
    assert kubectl("auth", "can-i", "list", "pods", robot).out.strip() == "yes"
    assert kubectl("auth", "can-i", "delete", "pods", robot, fails=True).out.split()[0] == "no"
    kubectl("get", "pods", robot)
    assert "is forbidden" in kubectl("get", "secrets", robot, fails=True).err


def test_generated_names(kubectl: Kubectl) -> None:
    document = config("", kubectl.namespace)
    document["metadata"] = {"generateName": "made-"}
    assert kubectl("create", "-f", "-", given=document).out.startswith("configmap/made-")


def test_a_pod_gets_a_debug_container_and_other_resources(kubectl: Kubectl) -> None:
    given = pod("p", kubectl.namespace)
    given["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    kubectl("create", "-f", "-", given=given)
    kubectl("debug", "p", "--image=busybox", "--container=look", "--target=c")
    (added,) = kubectl.get("pod", "p")["spec"]["ephemeralContainers"]
    assert (added["name"], added["image"], added["targetContainerName"]) == ("look", "busybox", "c")
    change = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
    kubectl("patch", "pod", "p", "--subresource", "resize", "-p", json.dumps(change))
    assert kubectl.get("pod", "p")["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2"}
    refused = kubectl("patch", "pod", "p", "-p", json.dumps(change).replace('"2"', '"3"'), fails=True)
    assert "spec: Forbidden" in refused.err
