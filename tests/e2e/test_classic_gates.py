"""Claims switched off and on again (rollback of KEP-3063): what runs stays, what is new goes without."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dray.gates import GateSet
from tests.contract.classic import classic_class
from tests.e2e.kubectl import NO_KUBECTL, Kubectl
from tests.e2e.patience import until
from tests.e2e.processes import Process
from tests.e2e.server import clean_environment
from tests.e2e.use_case_cluster import Stage, node, pod, upped

req = pytest.mark.req
CLAIMS = "resourceclaims.cdi.k8s.io"
DRIVER = "acme.example.com"
OFF = ",".join(f"{gate.name}=false" for gate, _ in GateSet.from_defaults())
"""Everything that has to do with claims."""
NO_CLASSIC = "DRAControlPlaneController=false"

INLINE = {"name": "res", "template": {"spec": {"resourceClassName": DRIVER}}}


class Downtimes:
    """A cluster that is stopped and started with other gates, on the same data."""

    def __init__(self, folder: Path, home: Path) -> None:
        program = shutil.which("kubectl")
        if program is None:
            pytest.skip(NO_KUBECTL)
        self._folder, self._home, self._program = folder, home, program

    @contextmanager
    def up(self, *options: str) -> Iterator[Stage]:
        with upped(self._folder, *options) as kubeconfig:
            kubectl = Kubectl(self._program, clean_environment(self._home, kubeconfig), "default")
            yield Stage(kubectl)

    @contextmanager
    def driver(self, stage: Stage) -> Iterator[None]:
        """A driver with one unit on each node."""
        stage.kubectl("apply", "-f", "-", given=classic_class(DRIVER, DRIVER))
        program = (sys.executable, "-m", "tests.e2e.classic_driver", "--driver", DRIVER)
        where = ("--kubeconfig", stage.kubectl.environment["KUBECONFIG"], "--capacity", "node-a=1,node-b=1")
        process = Process((*program, *where), self._folder / "driver.log", "is ready")
        process.start()
        try:
            yield
        finally:
            process.stop()


@pytest.fixture
def again(tmp_path: Path, home: Path) -> Downtimes:
    return Downtimes(tmp_path, home)


def _spec(stage: Stage, name: str) -> dict[str, Any]:
    found: dict[str, Any] = stage.kubectl.get("pod", name)["spec"]
    return found


def _running(stage: Stage, name: str) -> None:
    status = json.dumps({"status": {"phase": "Running"}})
    stage.kubectl("patch", "pod", name, "--subresource=status", "-p", status)


@req("K3063-163", "K3063-164", "K3063-165", "K3063-166", "K3063-167", "K3063-168", "K3063-169", "K3063-173")
def test_claims_are_switched_off_and_on_again(again: Downtimes) -> None:
    with again.up() as stage, again.driver(stage):
        stage.make(node("node-a"), node("node-b"))
        stage.make(pod("without"), pod("runs", INLINE))
        assert stage.bound("without")
        home = stage.bound("runs")
        _running(stage, "runs")
    with again.up() as stage:
        # without its driver a pod waits, and this one waits through what follows
        stage.make(pod("waits", INLINE))
        assert "waiting for the driver of claim default/waits-res" in stage.pending("waits")

    with again.up("--feature-gates", OFF) as stage:
        assert stage.bound("waits"), "scheduled as if nothing was requested"
        assert _spec(stage, "waits")["resourceClaims"] == [INLINE], "what is stored stays"
        assert (_spec(stage, "runs")["nodeName"], _spec(stage, "runs")["resourceClaims"]) == (home, [INLINE])
        made = stage.kubectl("create", "-f", "-", given=pod("new", INLINE))
        assert "DynamicResourceAllocation" in made.err, "the person is warned"
        assert "resourceClaims" not in _spec(stage, "new")
        stage.make(pod("plain"))
        assert stage.bound("new")
        assert stage.bound("plain")
        assert "the server doesn't have a resource type" in stage.kubectl("get", CLAIMS, fails=True).err

    with again.up() as stage, again.driver(stage):
        status = stage.kubectl.get(CLAIMS, "runs-res")["status"]
        assert (status["phase"], [user["name"] for user in status["reservedFor"]]) == ("Allocated", ["runs"])
        assert status["attributes"]["node"] == home
        _is_told(stage, "waits", "claim waits-res is not reserved for this pod")
        assert _spec(stage, "waits")["nodeName"], "nobody moves it"
        stage.ends("waits")
        stage.kubectl("wait", "--for=delete", f"{CLAIMS}/waits-res", "--timeout=10s")
        stage.make(pod("waits", INLINE))
        assert stage.bound("waits") != home
        users = stage.kubectl.get(CLAIMS, "waits-res")["status"]["reservedFor"]
        assert [user["name"] for user in users] == ["waits"]


def _is_told(stage: Stage, name: str, words: str) -> None:
    until(lambda: any(words in event for event in stage.events(name)), lambda: stage.events(name))


@req("K3063-163", "K3063-165")
def test_the_scheduler_alone_without_claims_places_pods_as_if_they_had_none(again: Downtimes) -> None:
    with again.up("--scheduler-feature-gates", OFF) as stage:
        stage.make(node("node-a"), pod("p", INLINE))
        assert stage.bound("p") == "node-a"
        _is_told(stage, "p", "claim p-res is not reserved for this pod")


@req("K3063-169", "K3063-170")
def test_without_claims_elsewhere_the_scheduler_keeps_only_pods_with_claims_waiting(
    again: Downtimes,
) -> None:
    with again.up("--controller-feature-gates", OFF) as stage:
        stage.make(node("node-a"), pod("p", INLINE), pod("plain"))
        assert stage.bound("plain") == "node-a"
        assert stage.pending("p") == "claim default/p-res does not exist"
    with again.up("--server-feature-gates", OFF, "--controller-feature-gates", OFF) as stage:
        stage.make(pod("plain-too"))
        assert stage.bound("plain-too") == "node-a"
        assert "nodeName" not in _spec(stage, "p")


@req("K3063-164")
def test_the_classic_path_alone_is_switched_off(again: Downtimes) -> None:
    with again.up() as stage, again.driver(stage):
        stage.make(node("node-a"), pod("p", INLINE))
        assert stage.bound("p") == "node-a"
    with again.up("--feature-gates", NO_CLASSIC) as stage:
        refused = stage.kubectl("create", "-f", "-", given=pod("new", INLINE), fails=True)
        assert "spec.resourceClaims[0]" in refused.err
        assert _spec(stage, "p")["resourceClaims"] == [INLINE]
    with again.up() as stage:
        assert stage.kubectl.get(CLAIMS, "p-res")["status"]["phase"] == "Allocated"
