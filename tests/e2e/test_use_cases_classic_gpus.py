"""Use cases of KEP-3063 about GPUs: an administrator's class, parts of a device, and doing without one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.contract.classic import classic_class
from tests.e2e.patience import until
from tests.e2e.vendors import (
    CLAIMS,
    Document,
    Place,
    Vendor,
    container,
    folder_of_vendor,
    inline,
    pod,
    vendors_place,
)
from tests.outside import ROOT

req = pytest.mark.req
SEEDS = ROOT / "examples" / "seeds"
DRIVER = "gpu.acme.com"
OFF = "AllAlpha=false,AllBeta=false,DynamicResourceAllocation=false"
STAYS = "exec sleep 600"
INITIALISES = '#!/bin/sh\necho "$@" > initialised\n'


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory, home: Path, kubectl_program: str) -> Iterator[Place]:
    """Two nodes, one of which has a GPU with 4Gi, and a class of an administrator."""
    folder = tmp_path_factory.mktemp("gpus")
    with folder_of_vendor() as root, vendors_place(folder, home, kubectl_program, "node-a", "node-b") as made:
        program = root / "usr" / "local" / "bin" / "acme-gpu-init"
        program.parent.mkdir(parents=True)
        program.write_text(INITIALISES)
        program.chmod(0o755)
        environment = {"ACME_GPUS": "node-a=4Gi", "ACME_ROOT": str(root)}
        vendor = Vendor(DRIVER, ("-m", "tests.e2e.programs.acme"), environment)
        made.installs(vendor, "node-a", "node-b")
        made.kubectl("create", "-f", str(SEEDS / "kep-3063-resource-class.yaml"))
        yield made


@pytest.fixture
def place(works: Place) -> Iterator[Place]:
    """A namespace of its own; the objects of one use case are gone before the next one begins."""
    made = works.apart()
    yield made
    made.kubectl("delete", f"pods,{CLAIMS}", "--all", "--timeout=30s")


def gpu(memory: str, **more: object) -> Document:
    return inline("acme-gpu", "gpu", memory=memory, **more)


def checks(memory: str) -> str:
    """A script that ends unless its GPU has this much memory."""
    return f'test "$ACME_MEMORY" = {memory}; {STAYS}'


@req("K3063-048", "K3063-042", "K3063-010")
def test_two_containers_share_a_part_of_a_gpu_and_others_have_the_rest(place: Place) -> None:
    consumer = yaml.safe_load((SEEDS / "kep-3063-pod-inline-template.yaml").read_text())
    workload, monitor = consumer["spec"]["containers"]
    workload["command"] = ["sh", "-ec", f'test $ACME_MEMORY = 2Gi; echo 7 > "$ACME_PART/frames"; {STAYS}']
    seen = f'test $ACME_MEMORY = 2Gi; until grep -s 7 "$ACME_PART/frames"; do sleep 0.1; done; {STAYS}'
    monitor["command"] = ["sh", "-ec", seen]
    consumer["spec"] |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    place.makes(consumer)
    assert place.runs("device-consumer") == "node-a"
    until(lambda: place.kubectl("logs", "device-consumer", "-c", "monitor").out == "7\n", place.seen)
    uid = place.kubectl.get(CLAIMS, "device-consumer-gpu")["metadata"]["uid"]

    # The rest is for others, and no more than the rest.
    place.makes(pod("beside", [gpu("2Gi")], container(checks("2Gi"), "gpu")))
    assert place.runs("beside") == "node-a"
    place.makes(pod("late", [gpu("2Gi")], container(checks("2Gi"), "gpu")))
    place.told("late", "cannot allocate it for this node")
    assert place.node_of("late") == ""

    # What was allocated goes with the pod.
    place.kubectl("delete", "pod", "device-consumer", "--timeout=30s")
    assert place.runs("late") == "node-a"
    assert {each["metadata"]["name"] for each in place.kubectl.get(CLAIMS)["items"]} == {
        "beside-gpu",
        "late-gpu",
    }
    assert place.kubectl.get(CLAIMS, "late-gpu")["metadata"]["uid"] != uid


@req("K3063-010")
def test_containers_have_their_part_of_a_device_and_not_that_of_others(place: Place) -> None:
    shows = "echo ${ACME_MEMORY:-none} ${ACME_PART:-nowhere}"
    place.makes(
        pod(
            "both",
            [inline("acme-gpu", "small", memory="1Gi"), inline("acme-gpu", "large", memory="3Gi")],
            container(shows, "small", name="one"),
            container(shows, "large", name="two"),
            container(shows, name="three"),
        )
    )
    place.succeeds("both")
    assert place.node_of("both") == "node-a"
    had = [place.kubectl("logs", "both", "-c", name).out.split() for name in ("one", "two", "three")]
    assert [memory for memory, _ in had] == ["1Gi", "3Gi", "none"]
    assert len({part for _, part in had}) == 3


@req("K3063-011", "K3063-015")
def test_a_workload_uses_a_device_if_there_is_one_and_runs_without_it_otherwise(place: Place) -> None:
    script = (
        f'if [ -n "$ACME_MEMORY" ]; then echo on a gpu with $ACME_MEMORY; else echo on the cpu; fi; {STAYS}'
    )
    for name in ("first", "second"):
        place.makes(pod(name, [gpu("3Gi", optional=True)], container(script, "gpu")))
        place.runs(name)
    # Only one node has a GPU, and that is where who comes first goes.
    assert place.node_of("first") == "node-a"
    until(lambda: place.kubectl("logs", "first").out == "on a gpu with 3Gi\n", place.seen)
    until(lambda: place.kubectl("logs", "second").out == "on the cpu\n", place.seen)
    assert place.status("second-gpu")["phase"] == "Allocated"

    place.makes(pod("strict", [gpu("3Gi")], container(checks("3Gi"), "gpu")))
    place.told("strict", "cannot allocate it for this node")
    place.kubectl("delete", "pod", "first", "--timeout=30s")
    assert place.runs("strict") == "node-a"


@req("K3063-046", "K3063-024", "K3063-025", "K3063-060", "K3063-028")
def test_an_administrator_chooses_how_gpus_are_initialised_and_nobody_else_does(place: Place) -> None:
    check = 'test "$(cat $ACME_PART/initialised)" = "--cluster my-cluster"'
    place.makes(pod("p", [gpu("1Gi")], container(check, "gpu")))
    place.succeeds("p")

    # A user may do everything in a namespace, and neither make nor change classes.
    place.kubectl("create", "rolebinding", "users", "--clusterrole=admin", "--user=jane")
    jane = str(place.cluster.credentials("jane"))
    mine = classic_class("mine", DRIVER, initCommand=["/usr/local/bin/acme-gpu-init", "--cluster", "hers"])
    refused = place.kubectl("create", "-f", "-", given=mine, KUBECONFIG=jane, fails=True)
    assert 'cannot create resource "resourceclasses"' in refused.err
    patch = (
        "patch",
        "resourceclass",
        "acme-gpu",
        "--type=merge",
        "-p",
        '{"parameters": {"initCommand": []}}',
    )
    assert "cannot patch resource" in place.kubectl(*patch, KUBECONFIG=jane, fails=True).err

    # Nor can it be slipped in with the parameters that users have.
    smuggled = {**gpu("1Gi", initCommand=["/bin/true"])}
    document = pod("smuggles", [smuggled], container(STAYS, "gpu"))
    place.kubectl("create", "-f", "-", given=document, KUBECONFIG=jane)
    place.told("smuggles-gpu", "initCommand")
    assert place.node_of("smuggles") == ""


@req("K3063-162")
def test_on_a_node_without_the_feature_a_workload_starts_without_and_must_look_itself(place: Place) -> None:
    old = place.cluster.node("node-old", "--feature-gates", OFF)
    try:
        script = 'if [ -z "$ACME_MEMORY" ]; then echo no gpu; exit 3; fi; exec sleep 600'
        document = pod("looks", [gpu("1Gi")], container(script, "gpu"))
        document["spec"]["nodeName"] = "node-old"
        place.makes(document)
        until(lambda: place.phase("looks") == "Failed", place.seen)
        assert place.kubectl("logs", "looks").out == "no gpu\n"
        place.told("looks", "the agent of this node does not prepare claims")
        assert "claims are not prepared" in old.agent.log.read_text()
    finally:
        place.kubectl("delete", "pod", "looks", "--ignore-not-found")
        old.agent.stop()
        place.kubectl("delete", "node", "node-old")
