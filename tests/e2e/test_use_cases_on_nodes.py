"""The user scenarios of the KEPs with all components running, checked by what containers observe.

Server, scheduler, controller, three node agents and their drivers are processes of their own. What a pod got
is judged by its own command, which fails when it is not what its author wants.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.e2e.processes import Cluster, Node, cluster
from tests.e2e.server import clean_environment
from tests.e2e.use_case_cluster import Stage, claim, named, request, template

req = pytest.mark.req

Document = dict[str, Any]

GPU, NIC, CPU = "gpu.example.com", "nic.example.com", "cpu.example.com"
SIZED, FABRIC = "sized.example.com", "fabric.example.com"
ROOT = "resource.kubernetes.io/pcieRoot"
STOCK = ("-m", "tests.e2e.programs.stock")
STAYS = "exec sleep 600"

# --- what there is: three nodes with cards of three generations, and more on the oldest of them ---


def gpu(number: int, model: str, root: str) -> Document:
    return {"name": f"gpu-{number}", "attributes": {"model": model, ROOT: root}}


def interface(number: int, root: str, **more: Any) -> Document:
    policy = {"value": "10Gi", "default": "1Gi", "min": "1Gi", "max": "8Gi", "step": "1Gi"}
    amount: Any = policy if more.get("shared") else "10Gi"
    attributes = {"interfaceName": f"eth{number}", ROOT: root}
    return {"name": f"eth{number}", "attributes": attributes, "capacity": {"bandwidth": amount}, **more}


def sized(gigabytes: int) -> Document:
    return {"name": f"gpu-of-{gigabytes}", "capacity": {"memory": f"{gigabytes}Gi"}}


INTERFACES = [
    # The first by order is for one claim only; the other two are on the same network for many.
    interface(0, "pci0000:03"),
    interface(1, "pci0000:01", shared=True),
    interface(2, "pci0000:03", shared=True),
]
CORES = [
    {"name": "cpu-1", "attributes": {ROOT: ["pci0000:03", "pci0000:04"]}},
    {"name": "cpu-0", "attributes": {ROOT: ["pci0000:01", "pci0000:02"]}},
]
SIZES = [
    # The order in which they are told is the wrong one: the priorities say what comes first.
    {"priority": 1, "devices": [sized(80)]},
    {"priority": 3, "devices": [sized(1)]},
    {"priority": 2, "devices": [sized(40), sized(20)]},
]
NEAR = [{"name": "near-0"}]
FAR = [{"name": "far-0"}, {"name": "far-1"}]

DRIVERS: list[tuple[str | None, str, list[Document]]] = [
    ("new", GPU, [{"devices": [gpu(0, "g3", "pci0000:09")]}]),
    ("middle", GPU, [{"devices": [gpu(0, "g2", "pci0000:09")]}]),
    ("old", GPU, [{"devices": [gpu(0, "g1", "pci0000:01"), gpu(1, "g1", "pci0000:08")]}]),
    ("old", NIC, [{"devices": INTERFACES}]),
    ("old", CPU, [{"devices": CORES}]),
    ("old", SIZED, [{"slices": SIZES}]),
    ("old", FABRIC, [{"devices": NEAR}]),
    (None, FABRIC, [{"name": "a-fabric", "everywhere": True, "priority": -1, "devices": FAR}]),
]
"""Where a driver is, what it is called, and its pools."""


def device_class(name: str, expression: str) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


CLASSES = [
    *(device_class(name, f'device.driver == "{name}"') for name in (GPU, NIC, CPU, SIZED, FABRIC)),
    device_class("shared-nic", f'device.driver == "{NIC}" && device.allowMultipleAllocations'),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("use-cases")) as processes, ThreadPoolExecutor(4) as several:
        services = [
            several.submit(processes.service, name, f"dray:{name}") for name in ("scheduler", "controller")
        ]
        made = several.map(
            lambda name: processes.node(name, "--label", f"name={name}"), ("new", "middle", "old")
        )
        nodes: dict[str | None, Node] = {node.name: node for node in made}

        def driver(where: str | None, name: str, pools: list[Document]) -> None:
            processes.kit_driver(
                nodes.get(where), name, STOCK, STOCK=json.dumps({"driver": name, "pools": pools})
            )

        list(several.map(lambda row: driver(*row), DRIVERS))
        for service in services:
            service.result()
        yield processes


@pytest.fixture(scope="module")
def furnished(place: Cluster, kubectl_program: str, home: Path) -> Kubectl:
    """A cluster in which all drivers have told what they have and are known to their agents."""
    kubectl = Kubectl(kubectl_program, clean_environment(home, place.server.kubeconfig), "default")
    kubectl("create", "-f", "-", given=CLASSES)
    for where in ("new", "middle", "old"):
        log = place.folder / f"{where}.log"
        names = [name for at, name, _ in DRIVERS if at == where]
        until(lambda: all(name in log.read_text() for name in names), log.read_text)  # noqa: B023
    return kubectl


@pytest.fixture
def stage(furnished: Kubectl) -> Iterator[Stage]:
    home, kubeconfig = (Path(furnished.environment[name]) for name in ("HOME", "KUBECONFIG"))
    opened = Stage.opened(furnished.program, home, kubeconfig)
    yield opened
    for each in (opened, *opened.others):
        each.kubectl("delete", "pods,resourceclaims", "--all", "--wait=true", "--timeout=50s")
    assert furnished.get("preparations")["items"] == []


# --- what is asked for ---


def pod(name: str, script: str, entry: Document, **spec: Any) -> Document:
    """A pod that wants to be sure of what it got, and fails when it did not."""
    container = {
        "name": "c",
        "image": "none:1",
        "command": ["sh", "-euc", script],
        "resources": {"claims": [{"name": entry["name"]}]},
    }
    more = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, **spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "resourceClaims": [entry], **more},
    }


def runs(stage: Stage, name: str) -> list[str]:
    """What a pod says that goes on running; the last line says that it has seen all it wanted."""

    def has_told() -> bool:
        phase = stage.kubectl.get("pod", name)["status"]["phase"]
        assert phase != "Failed", stage.kubectl("logs", name).out
        return phase == "Running" and "well" in stage.kubectl("logs", name).out.splitlines()

    until(has_told, lambda: stage.kubectl("describe", "pod", name).out)
    assert stage.kubectl.get("pod", name)["status"]["phase"] == "Running"
    return stage.kubectl("logs", name).out.splitlines()[:-1]


# --- KEP-4816: alternatives ---

GENERATIONS = f"""
set -- $GPU_GPU_DEVICES
echo "$GPU_GPU_ALTERNATIVE: $# of ${{GPU_GPU_MODELS% *}}"
case "$GPU_GPU_MODELS" in
g3) test "$#:$GPU_GPU_ALTERNATIVE" = 1:newest;;
g2) test "$#:$GPU_GPU_ALTERNATIVE" = 1:older;;
"g1 g1") test "$1:$2:$GPU_GPU_ALTERNATIVE" = gpu-0:gpu-1:two-of-the-oldest;;
*) exit 3;;
esac
echo well
{STAYS}
"""
"""A program that works with one card of a newer model or with two of an old one."""

NEWEST = (["newest: 1 of g3"], "new")
OLDER = (["older: 1 of g2"], "middle")
OLDEST = (["two-of-the-oldest: 2 of g1"], "old")


@req("K4816-078", "K4816-082", "K4816-083", "K4816-090")
def test_a_program_runs_on_the_newest_card_that_is_free_or_on_two_old_ones(stage: Stage) -> None:
    stage.scenery("generations")
    for number, wanted in enumerate((NEWEST, OLDER, OLDEST)):
        stage.make(pod(f"p{number}", GENERATIONS, template("flexible")))
        assert (runs(stage, f"p{number}"), stage.bound(f"p{number}")) == wanted
    stage.make(pod("waits", GENERATIONS, template("flexible")))
    assert "gpu not found: none of 3 alternatives" in stage.pending("waits")
    stage.kubectl("delete", "pod", "p1", "--timeout=50s")
    assert (runs(stage, "waits"), stage.bound("waits")) == OLDER


@req("K4816-079")
def test_one_manifest_runs_wherever_there_are_cards_of_some_model(stage: Stage, tmp_path: Path) -> None:
    """Nodes are taken out of service one by one: what is left is a cluster with other models each time."""
    stage.scenery("generations")
    manifest = tmp_path / "workload.json"
    manifest.write_text(json.dumps(pod("workload", GENERATIONS, template("flexible"))))
    published = manifest.read_bytes()
    try:
        for gone, wanted in ((None, NEWEST), ("new", OLDER), ("middle", OLDEST)):
            if gone is not None:
                stage.kubectl("cordon", gone)
            stage.kubectl("create", "-f", str(manifest))
            assert (runs(stage, "workload"), stage.bound("workload")) == wanted
            stage.kubectl("delete", "-f", str(manifest), "--timeout=50s")
    finally:
        stage.kubectl("uncordon", "new", "middle")
    assert manifest.read_bytes() == published


# --- KEP-5075: shares ---


def share(name: str, bandwidth: str | None = None) -> Document:
    more = {} if bandwidth is None else {"capacity": {"requests": {"bandwidth": bandwidth}}}
    return claim(name, request("net", "shared-nic", **more))


def wants(bandwidth: str, interfaces: str = "eth1|eth2") -> str:
    """A program that needs so much on an interface that it shares with others."""
    return f"""
echo "$NIC_NET_DEVICES $NIC_NET_BANDWIDTH $NIC_NET_SHARES"
case "$NIC_NET_DEVICES" in {interfaces}) ;; *) exit 3;; esac
test "$NIC_NET_BANDWIDTH" = {bandwidth}
test -n "$NIC_NET_SHARES"
echo well
{STAYS}
"""


@req("K5075-018")
def test_programs_share_the_interfaces_that_are_for_many(stage: Stage) -> None:
    """Two interfaces of one network are for many, a third is not; the class offers the two."""
    told = {}
    for name in ("a", "b", "c", "d"):
        stage.make(share(name, "5Gi"), pod(name, wants("5Gi"), named(name)))
        ((device, _, share_id),) = [line.split() for line in runs(stage, name)]
        told[share_id] = device
    assert sorted(told.values()) == ["eth1", "eth1", "eth2", "eth2"], told
    ids = {result["shareID"] for name in "abcd" for result in stage.results(name)}
    assert set(told) == ids, "a container knows which share is its own"
    stage.make(share("e"), pod("e", wants("1Gi"), named("e")))
    assert "bandwidth" in stage.pending("e")
    stage.kubectl("delete", "pod", "c", "--timeout=50s")
    (line,) = runs(stage, "e")
    assert line.split()[:2] == [stage.results("e")[0]["device"], "1Gi"]


@req("K5075-019")
def test_a_program_that_needs_two_interfaces_does_not_get_the_same_twice(stage: Stage) -> None:
    script = f"""
echo "$NIC_ONE_DEVICES $NIC_TWO_DEVICES"
test "$NIC_ONE_DEVICES" != "$NIC_TWO_DEVICES"
case "$NIC_ONE_DEVICES $NIC_TWO_DEVICES" in "eth1 eth2"|"eth2 eth1") ;; *) exit 3;; esac
echo well
{STAYS}
"""
    two = (request("one", "shared-nic"), request("two", "shared-nic"))
    apart = {"requests": ["one", "two"], "distinctAttribute": f"{NIC}/interfaceName"}
    stage.make(claim("any", *two), pod("any", script, named("any")))
    # Without the constraint both are shares of the same interface, and the program does not accept it.
    stage.kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/any", "--timeout=50s")
    assert stage.kubectl("logs", "any").out == "eth1 eth1\n"
    stage.make(claim("apart", *two, constraints=[apart]), pod("apart", script, named("apart")))
    assert runs(stage, "apart") in (["eth1 eth2"], ["eth2 eth1"])


@req("K5075-020")
def test_a_program_knows_its_bandwidth_what_it_asked_for_or_the_drivers_default(stage: Stage) -> None:
    asked = {
        "default": (None, "1Gi"),
        "little": ("1Mi", "1Gi"),
        "odd": ("2500Mi", "3Gi"),
        "most": ("8Gi", "8Gi"),
    }
    for name, (wish, given) in asked.items():
        stage.make(share(name, wish), pod(name, wants(given), named(name)))
    stage.make(share("much", "9Gi"), pod("much", wants("9Gi"), named("much")))
    for name, (_, given) in asked.items():
        (line,) = runs(stage, name)
        assert line.split()[1] == given == stage.results(name)[0]["consumedCapacity"]["bandwidth"]
    why = stage.pending("much")
    assert "9Gi" in why, why
    assert "8Gi" in why, why


# --- KEP-5773: order ---


@req("K5773-004")
def test_programs_get_the_smallest_card_that_is_large_enough(stage: Stage) -> None:
    enough = {
        "cel": {
            "expression": f'device.capacity["{SIZED}"].memory.isGreaterThan(quantity("1Gi")) || '
            f'device.capacity["{SIZED}"].memory == quantity("1Gi")'
        }
    }
    got = []
    for name in ("p0", "p1", "p2"):
        stage.make(claim(name, request("gpu", SIZED, selectors=[enough])))
        stage.make(pod(name, f'echo "$SIZED_GPU_DEVICES"; echo well; {STAYS}', named(name)))
        got += runs(stage, name)
    assert got == ["gpu-of-1", "gpu-of-40", "gpu-of-20"], "priorities first, then the order of the driver"


@req("K5773-005")
def test_programs_get_what_is_near_before_what_is_attached_by_network(stage: Stage) -> None:
    where = []
    for name in ("p0", "p1"):
        stage.make(claim(name, request("card", FABRIC)))
        script = f'echo "$FABRIC_CARD_POOLS $FABRIC_CARD_DEVICES"; echo well; {STAYS}'
        stage.make(pod(name, script, named(name), nodeSelector={"name": "old"}))
        where += runs(stage, name)
    assert where == ["old near-0", "a-fabric far-0"]


# --- KEP-5491: lists ---


@req("K5491-028")
def test_a_program_gets_cores_a_card_and_an_interface_that_are_near_each_other(stage: Stage) -> None:
    """The driver of cores tells lists of PCIe roots, the others are older and tell one root each."""
    script = f"""
echo "$GPU_GPU_DEVICES $NIC_NIC_DEVICES $CPU_CPU_DEVICES"
test "$GPU_GPU_DEVICES" = gpu-0
test "$NIC_NIC_DEVICES" = eth1
test "$CPU_CPU_DEVICES" = cpu-0
echo well
{STAYS}
"""
    wanted = (request("gpu", GPU), request("nic", NIC), request("cpu", CPU, count=1))
    near = {"requests": ["gpu", "nic", "cpu"], "matchAttribute": ROOT}
    stage.make(claim("near", *wanted, constraints=[near]), pod("near", script, named("near")))
    assert runs(stage, "near") == ["gpu-0 eth1 cpu-0"]
    assert stage.bound("near") == "old"
    stage.make(claim("again", *wanted, constraints=[near]), pod("again", script, named("again")))
    assert ROOT in stage.pending("again")
