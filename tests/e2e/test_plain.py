"""Who was not written with dray: a classic driver under our agent, and a kubelet over our kit."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from dray.client.connect import connect
from tests.contract.classic import classic_claim, classic_class
from tests.contract.documents import allocation, claim
from tests.e2e.classic_driver import Controller
from tests.e2e.classic_driver import Ways as Units
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import SOON, until
from tests.e2e.plain_driver import PlainDriver, Ways
from tests.e2e.plain_kubelet import Claim, Kubelet
from tests.e2e.processes import Cluster, Node, Process, cluster
from tests.e2e.server import clean_environment
from tests.outside import ROOT

NODE = "worker"
CLASSIC = "classic.example.com"
GPU = "gpu.example.com"
TALKS = "echo claim=$PLAIN_CLAIM; exec sleep 600"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("plain")) as processes:
        processes.service("scheduler", "dray:scheduler")
        processes.service("controller", "dray:controller")
        yield processes


@pytest.fixture(scope="module")
def kubectl(place: Cluster, kubectl_program: str, home: Path) -> Kubectl:
    found = Kubectl(kubectl_program, clean_environment(home, place.server.kubeconfig), "default")
    role = ("--clusterrole=dray:classic-driver", "--group=classic-drivers")
    found("create", "clusterrolebinding", "classic-drivers", *role)
    return found


@pytest.fixture(scope="module")
def node(place: Cluster, kubectl: Kubectl) -> Node:
    place.driver(kubectl, CLASSIC, f"{NODE}=4")
    return place.node(NODE)


def plain(node: Node, log: Path, *options: str) -> Process:
    """The classic driver of a node, in a process of its own."""
    (node.root / "cdi").mkdir(mode=0o700, exist_ok=True)
    places = {"--registry": "plugins_registry", "--plugins": "plugins", "--cdi-dir": "cdi"}
    words = [word for option, folder in places.items() for word in (option, str(node.root / folder))]
    program = [sys.executable, "-m", "tests.e2e.plain_driver", "--classic", "--name", CLASSIC]
    return Process([*program, *words, *options], log, f"{CLASSIC} is ready")


def pod(name: str) -> dict[str, Any]:
    resources = {"claims": [{"name": "res"}]}
    container = {"name": "c", "image": "none:1", "command": ["sh", "-c", TALKS], "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [container],
            "resourceClaims": [{"name": "res", "resourceClaimName": name}],
            "terminationGracePeriodSeconds": 1,
        },
    }


def wanted(name: str) -> dict[str, Any]:
    document = classic_claim(name)
    document["spec"]["resourceClassName"] = CLASSIC
    return document


@pytest.mark.req("K3063-006", "K3063-022", "K3063-129", "K3063-130", "K3063-131", "K3063-136", "K3063-143")
def test_a_classic_driver_that_was_not_written_with_the_kit_serves_a_pod(
    kubectl: Kubectl, node: Node, tmp_path: Path
) -> None:
    driver = plain(node, tmp_path / "log")
    driver.start()
    try:
        kubectl("create", "-f", "-", given=[wanted("c"), pod("c")])
        kubectl("wait", "--for=condition=Ready", "pod/c", "--timeout=60s")
        uid = kubectl.get("resourceclaims.cdi.k8s.io", "c")["metadata"]["uid"]
        until(lambda: f"claim={uid}" in kubectl("logs", "c").out)
        kubectl("delete", "pod", "c", "--timeout=60s")
        assert list((node.root / "cdi").iterdir()) == []
        calls = [line for line in driver.log.read_text().splitlines() if line.startswith("Node")]
        assert calls == ["NodePrepareResource OK", "NodeUnprepareResource OK"]
    finally:
        driver.stop()


@pytest.mark.req("K3063-141", "K3063-142", "K3063-148")
def test_a_claim_that_a_driver_does_not_know_yet_is_asked_for_again(
    kubectl: Kubectl, node: Node, tmp_path: Path
) -> None:
    driver = plain(node, tmp_path / "log", "--unknown", "3")
    driver.start()
    try:
        kubectl("create", "-f", "-", given=[wanted("late"), pod("late")])
        kubectl("wait", "--for=condition=Ready", "pod/late", "--timeout=60s")
        events = kubectl.get("events", "--field-selector=involvedObject.name=late")["items"]
        told = [event["message"] for event in events if "NOT_FOUND" in event["message"]]
        assert told
        why = f"driver {CLASSIC} did not prepare claim default/late: never heard of it (NOT_FOUND)"
        assert all(why in each for each in told), told
        kubectl("delete", "pod", "late", "--timeout=60s")
        assert list((node.root / "cdi").iterdir()) == []
        calls = [line for line in driver.log.read_text().splitlines() if line.startswith("Node")]
        assert calls == [
            *["NodePrepareResource NOT_FOUND"] * 3,
            "NodePrepareResource OK",
            *["NodeUnprepareResource NOT_FOUND"] * 3,
            "NodeUnprepareResource OK",
        ]
    finally:
        driver.stop()


@pytest.mark.req("K3063-155")
def test_both_parts_of_a_driver_can_run_inside_a_test(place: Cluster, kubectl: Kubectl, node: Node) -> None:
    """The agent calls into this process, and the test has what it was asked in its hands."""
    name = "inside.example.com"
    kubectl("apply", "-f", "-", given=classic_class(name, name))
    kubeconfig = str(place.credentials(name, f"dray:driver:{name}", "classic-drivers"))
    places = node.root / "plugins_registry", node.root / "inside", node.root / "cdi"
    for folder in places[1:]:
        folder.mkdir(mode=0o700, exist_ok=True)
    ways = Ways(name, *places, type="ResourcePlugin", versions=())
    document = wanted("inside")
    document["spec"]["resourceClassName"] = name

    async def run() -> None:
        driver = await PlainDriver(ways).start()
        async with connect(kubeconfig) as client:
            controlling = asyncio.create_task(Controller(client, Units(name, {NODE: 1})).run())
            await asyncio.to_thread(kubectl, "create", "-f", "-", given=[document, pod("inside")])
            await asyncio.to_thread(kubectl, "wait", "--for=condition=Ready", "pod/inside", "--timeout=60s")
            claim = await asyncio.to_thread(kubectl.get, "resourceclaims.cdi.k8s.io", "inside")
            assert list(driver.prepared) == [claim["metadata"]["uid"]]
            await asyncio.to_thread(kubectl, "delete", "pod", "inside", "--timeout=60s")
            assert driver.prepared == {}
            controlling.cancel()
            await asyncio.gather(controlling, return_exceptions=True)
        await driver.stop()

    asyncio.run(run())


@pytest.fixture
def kit(place: Cluster, kubectl: Kubectl, tmp_path: Path) -> Iterator[Path]:
    """An example of the kit as a program; the directory that it works in."""
    kubectl("create", "-f", "-", given={"apiVersion": "v1", "kind": "Node", "metadata": {"name": "alone"}})
    with tempfile.TemporaryDirectory(prefix="dray-") as name:
        root = Path(name)
        for folder in ("registry", "plugins", "cdi", "ill"):
            (root / folder).mkdir(mode=0o700)
        groups = (f"dray:driver:{GPU}", "dray:drivers", "dray:on-node:alone")
        program = [sys.executable, str(ROOT / "examples/drivers/gpu/driver.py"), "run", "--node", "alone"]
        options = {
            "--kubeconfig": place.credentials(GPU, *groups),
            "--plugins-registry": root / "registry",
            "--plugins": root / "plugins",
            "--cdi-dir": root / "cdi",
        }
        words = [str(word) for pair in options.items() for word in pair]
        arguments = ["env", f"GPU_ILL={root / 'ill'}", *program, *words]
        driver = Process(arguments, tmp_path / "kit.log", "serving")
        driver.start()
        try:
            yield root
        finally:
            driver.stop()


def allocated(kubectl: Kubectl, name: str, device: str) -> Claim:
    """A claim that has a device, as if a scheduler had given it one."""
    made = created(kubectl, name)
    status = {"status": {"allocation": allocation(device, node="alone")}}
    kubectl("patch", "resourceclaim", name, "--subresource=status", "--type=merge", "-p", json.dumps(status))
    return made


def created(kubectl: Kubectl, name: str) -> Claim:
    made = kubectl("create", "-f", "-", "-o", "json", given=claim(name)).document
    return Claim("default", name, made["metadata"]["uid"])


@pytest.mark.req("K3063-022", "K3063-131", "K3063-132", "K3063-134", "K3063-146")
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_the_kit_answers_a_kubelet_that_was_not_written_with_dray(
    kubectl: Kubectl, kit: Path, version: str
) -> None:
    ours, other = allocated(kubectl, f"one-{version}", "gpu-1"), created(kubectl, f"two-{version}")

    async def run() -> None:
        (socket,) = [path for path in (kit / "registry").iterdir() if path.is_socket()]
        async with Kubelet(str(socket), version) as kubelet:
            assert {"v1.DRAPlugin", "v1beta1.DRAPlugin"} <= set(await kubelet.register())
            assert (kubelet.info.type, kubelet.info.name) == ("DRAPlugin", GPU)
            for _ in range(2):
                entry = (await kubelet.prepare(ours))[ours.uid]
                assert entry.error == ""
                (device,) = entry.devices
                assert (list(device.request_names), device.pool_name) == (["gpu"], "alone")
                assert device.device_name == "gpu-1"
                (file,) = (kit / "cdi").iterdir()
                spec = json.loads(file.read_text())
                named = {f"{spec['kind']}={each['name']}" for each in spec["devices"]}
                assert set(device.cdi_device_ids) <= named
            # One call, two claims, an answer for each: the second has no devices.
            entries = await kubelet.prepare(ours, other)
            assert (entries[ours.uid].error, bool(entries[other.uid].error)) == ("", True)
            for _ in range(2):
                assert (await kubelet.unprepare(ours))[ours.uid].error == ""
            assert list((kit / "cdi").iterdir()) == []
            with pytest.raises(grpc.aio.AioRpcError) as nobody:
                await kubelet.prepare_classic(ours.uid)
            assert nobody.value.code() == grpc.StatusCode.UNIMPLEMENTED

    asyncio.run(run())
    kubectl("delete", "resourceclaims", "--all")
    kubectl("delete", "node", "alone")


def test_the_kit_streams_health_to_a_kubelet_that_was_not_written_with_dray(
    kubectl: Kubectl, kit: Path
) -> None:
    async def run() -> None:
        (socket,) = [path for path in (kit / "registry").iterdir() if path.is_socket()]
        async with Kubelet(str(socket)) as kubelet, asyncio.timeout(SOON):
            assert "v1.DRAResourceHealth" in await kubelet.register()
            ill = False
            async for states in kubelet.watch():
                numbers = {device: state for (_, device), (state, _) in states.items()}
                assert numbers.keys() == {"gpu-0", "gpu-1", "gpu-2", "gpu-3"}
                if ill and numbers["gpu-2"] == 2:
                    break
                if not ill:
                    assert set(numbers.values()) == {1}
                    (kit / "ill" / "gpu-2").touch()
                    ill = True

    asyncio.run(run())
    kubectl("delete", "node", "alone")
