"""The official Python client, kr8s and kopf list, watch and write claims."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes
import pytest
from kubernetes.dynamic import DynamicClient

from tests.contract.documents import (
    allocation,
    claim,
    config,
    device_class,
    node,
    pod,
    resource_slice,
    template,
)
from tests.e2e.server import Running, clean_environment

HERE = "python"


@pytest.fixture(scope="module")
def official(server: Running) -> Iterator[kubernetes.client.ApiClient]:
    """The official client, with a namespace to work in."""
    with kubernetes.config.new_client_from_config(str(server.kubeconfig)) as client:
        _core(client).create_namespace({"metadata": {"name": HERE}})
        yield client


def _core(client: Any) -> Any:
    return kubernetes.client.CoreV1Api(client)


def _typed(client: Any) -> Any:
    return kubernetes.client.ResourceV1Api(client)


def test_the_server_tells_its_version_and_groups(official: Any) -> None:
    assert kubernetes.client.VersionApi(official).get_code().major == "1"
    groups = kubernetes.client.ApisApi(official).get_api_versions().groups
    assert "resource.k8s.io" in [group.name for group in groups]


def test_typed_objects_are_made_and_listed(official: Any) -> None:
    core, devices = _core(official), _typed(official)
    devices.create_device_class(device_class("typed.example.com"))
    core.create_node(node("typed"))
    devices.create_resource_slice(resource_slice("typed", "typed"))
    made = devices.create_namespaced_resource_claim(HERE, claim("typed", HERE))
    assert made.metadata.uid
    devices.create_namespaced_resource_claim_template(HERE, template("typed") | _named("typed"))
    core.create_namespaced_pod(HERE, pod("typed", HERE, claim_name="typed"))
    assert len(core.list_pod_for_all_namespaces(limit=2).items) >= 1
    found = devices.list_resource_claim_for_all_namespaces().items
    assert "typed" in [each.metadata.name for each in found]
    asked = next(each for each in found if each.metadata.name == "typed").spec.devices.requests[0]
    assert asked.exactly.device_class_name == "gpu.example.com"
    (published,) = devices.list_resource_slice(field_selector="spec.nodeName=typed").items
    assert [device.name for device in published.spec.devices] == ["gpu-0", "gpu-1"]


def _named(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": HERE}}


def test_patches_and_replacements(official: Any) -> None:
    core, devices = _core(official), _typed(official)
    core.create_node(node("patched"))
    devices.create_resource_slice(resource_slice("patched", "patched"))
    devices.create_namespaced_resource_claim(HERE, claim("patched", HERE))
    labelled = devices.patch_namespaced_resource_claim("patched", HERE, {"metadata": {"labels": {"a": "b"}}})
    assert labelled.metadata.labels == {"a": "b"}
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert core.patch_node_status("patched", ready).status.conditions[0].type == "Ready"
    read = devices.read_namespaced_resource_claim_status("patched", HERE)
    read.status = {"allocation": allocation("gpu-0", node="patched")}
    stored = devices.replace_namespaced_resource_claim_status("patched", HERE, read)
    assert stored.status.allocation.devices.results[0].device == "gpu-0"
    with pytest.raises(kubernetes.client.ApiException) as late:
        devices.replace_namespaced_resource_claim_status("patched", HERE, read)
    assert (late.value.status, late.value.reason) == (409, "Conflict")


def test_applies(official: Any) -> None:
    devices = _typed(official)
    document = claim("applied", HERE)
    way = {"field_manager": "me", "force": True, "_content_type": "application/apply-patch+yaml"}
    first = devices.patch_namespaced_resource_claim("applied", HERE, document, **way)
    made = devices.patch_namespaced_resource_claim("applied", HERE, document, **way)
    assert made.metadata.resource_version == first.metadata.resource_version
    assert [each.manager for each in made.metadata.managed_fields] == ["me"]


def test_watches(official: Any) -> None:
    core = _core(official)
    core.create_namespaced_pod(HERE, pod("watched", HERE))
    watch = kubernetes.watch.Watch()
    seen = []
    for event in watch.stream(core.list_namespaced_pod, HERE, timeout_seconds=20):
        if event["object"].metadata.name != "watched":
            continue
        seen.append(event["type"])
        if len(seen) == 1:
            core.delete_namespaced_pod("watched", HERE)
        else:
            watch.stop()
    assert seen == ["ADDED", "DELETED"]


def test_deletes(official: Any) -> None:
    core = _core(official)
    for name in ("one", "two", "three"):
        core.create_namespaced_pod(HERE, pod(name, HERE, labels={"gone": "yes"}))
    core.delete_namespaced_pod("one", HERE, grace_period_seconds=0)
    core.delete_collection_namespaced_pod(HERE, grace_period_seconds=0, label_selector="gone=yes")
    left = [each.metadata.name for each in core.list_namespaced_pod(HERE).items]
    assert not {"one", "two", "three"} & set(left)
    with pytest.raises(kubernetes.client.ApiException) as missing:
        core.read_namespaced_pod("one", HERE)
    assert missing.value.status == 404


def test_who_asks_is_told(official: Any) -> None:
    questions: Any = kubernetes.client.AuthenticationV1Api(official)
    review = questions.create_self_subject_review({})
    assert review.status.user_info.username == "dray-admin"


def test_the_dynamic_client(official: Any, tmp_path: Path) -> None:
    client = DynamicClient(official, cache_file=str(tmp_path / "cache"))
    slices = client.resources.get(api_version="resource.k8s.io/v1", kind="ResourceSlice")
    assert slices.get().kind == "ResourceSliceList"
    configs = client.resources.get(api_version="v1", kind="ConfigMap")
    configs.create(config("dynamic", HERE))
    merged = "application/merge-patch+json"
    patched = configs.patch({"data": {"b": "2"}}, "dynamic", HERE, content_type=merged)
    assert patched.data.b == "2"
    applied = configs.server_side_apply(
        {**config("dynamic", HERE), "data": {"c": "3"}},
        "dynamic",
        HERE,
        field_manager="x",
        force_conflicts=True,
    )
    assert applied.data.c == "3"
    old = client.resources.get(api_version="resource.k8s.io/v1beta1", kind="ResourceClaim")
    assert all(each.apiVersion == "resource.k8s.io/v1beta1" for each in old.get().items)
    claims = client.resources.get(api_version="resource.k8s.io/v1", kind="ResourceClaim")
    claims.create(claim("dynamic", HERE))
    seen = [(event["type"], event["object"].metadata.name) for event in claims.watch(HERE, timeout=1)]
    assert ("ADDED", "dynamic") in seen
    configs.delete("dynamic", HERE)


def _beside(name: str) -> Path:
    return Path(__file__).parent / "programs" / name


def test_kr8s(server: Running, official: Any, home: Path) -> None:
    core = _core(official)
    core.create_namespace({"metadata": {"name": "kr8s"}})
    done = subprocess.run(
        [sys.executable, str(_beside("with_kr8s.py")), "kr8s"],
        env=clean_environment(home, server.kubeconfig),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["done"], done.stderr


def test_kopf(server: Running, official: Any, home: Path, tmp_path: Path) -> None:
    core = _core(official)
    devices = _typed(official)
    core.create_namespace({"metadata": {"name": "kopf"}})
    said = tmp_path / "said"
    command = ["run", "--standalone", "--namespace=kopf", "--verbose", str(_beside("with_kopf.py"))]
    with said.open("w") as lines:
        operator = subprocess.Popen(
            [sys.executable, "-m", "kopf", *command],
            env=clean_environment(home, server.kubeconfig),
            stdout=lines,
            stderr=lines,
            stdin=subprocess.DEVNULL,
        )
    try:
        devices.create_namespaced_resource_claim("kopf", claim("greeted", "kopf"))
        _until(said, lambda: "example.com/greeted" in _annotations(devices))
        devices.create_resource_slice(resource_slice("kopf", "kopf"))
        _until(said, lambda: "slice kopf ADDED" in said.read_text())
        devices.delete_namespaced_resource_claim("greeted", "kopf")
        _until(said, lambda: "mourned greeted" in said.read_text())
        _until(said, lambda: devices.list_namespaced_resource_claim("kopf").items == [])
    finally:
        operator.terminate()
        operator.wait(20)


def _annotations(devices: Any) -> dict[str, str]:
    return devices.read_namespaced_resource_claim("greeted", "kopf").metadata.annotations or {}


def _until(said: Path, is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end, said.read_text()
        time.sleep(0.1)
