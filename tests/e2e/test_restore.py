"""A server goes on from an older copy while nodes run what it does not know: no device is used twice.

Two nodes reach two devices. In the copy `first` has one of them on node `one`, and `waiting` waits. After the
copy `waiting` gets the other one on node `two`; `first` goes, and `late` has its device on node `two`. Then
the server is killed, the copy restored, and the agent of `two` stands still: what runs there goes on.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from tests.contract.etcd_server import free_port
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.e2e.processes import Cluster, Process
from tests.e2e.programs import heedless, holder
from tests.e2e.server import Running, clean_environment, command
from tests.e2e.test_node import DRIVER, FROM_TEMPLATE, pod, runs
from tests.e2e.test_node import template as one_device
from tests.e2e.test_node_loss import eventually
from tests.e2e.use_case_cluster import fabric

BROKEN = [sys.executable, str(heedless.__file__)]
SOON = "3"
"""Seconds for nodes that the copy does not know; there are none."""


class Place:
    """A cluster whose server can be taken back to a copy."""

    def __init__(self, folder: Path, program: list[str], stack: ExitStack) -> None:
        self.folder, self._program = folder, program
        self.hall = folder / "hall"
        self.hall.mkdir()
        data, port = folder / "data", str(free_port())
        words = ("server", "--data-dir", str(data), "--port", port, "--limit", f"restored-seconds={SOON}")
        self.server = Process((*program, *words), folder / "server.log", "serving ")
        stack.callback(self.server.stop)
        self.server.start()
        self.kubeconfig = data / "admin.kubeconfig"
        nobody = cast("subprocess.Popen[bytes]", None)
        reached = Running(f"https://127.0.0.1:{port}", self.kubeconfig, nobody, self.server.log)
        self._processes = Cluster(folder, reached, stack)

    def furnish(self, kubectl: Kubectl) -> None:
        processes = self._processes
        with ThreadPoolExecutor() as hands:
            controller = hands.submit(processes.service, "controller", "dray:controller", "--upkeep")
            scheduler = hands.submit(processes.service, "scheduler", "dray:scheduler")
            self.one, self.two = hands.map(processes.node, ("one", "two"))
            for node in (self.one, self.two):
                processes.plain_driver(kubectl, node, DRIVER, "--devices", "0")
                until(partial(_names, node.agent.log, DRIVER), node.agent.log.read_text)
            self.scheduler = scheduler.result()
            controller.result()
        kubectl("create", "-f", "-", given=[fabric(DRIVER, "nic-0", "nic-1"), one_device()])

    def dray(self, *words: str) -> str:
        done = subprocess.run(command(*words), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def pod(self, name: str, **spec: Any) -> dict[str, Any]:
        """A pod that uses one device until it is killed."""
        made = pod(name, "", FROM_TEMPLATE, **spec)
        script = [sys.executable, str(holder.__file__), str(self.hall), name]
        made["spec"]["containers"][0]["command"] = script
        made["spec"]["terminationGracePeriodSeconds"] = 1
        return made

    def lines(self, name: str) -> list[str]:
        file = self.hall / name
        return file.read_text().splitlines() if file.exists() else []

    def restore(self) -> None:
        """The server dies and goes on from the copy."""
        self.server.stop(signal.SIGKILL)
        copy = str(self.folder / "copy")
        self.dray("server", "restore", copy, "--data-dir", str(self.kubeconfig.parent), "--force")
        self.server.start()

    @contextmanager
    def stopped(self, agent: Process) -> Iterator[None]:
        """An agent stands still while the block lasts; what it started goes on."""
        agent.send(signal.SIGSTOP)
        try:
            yield
        finally:
            agent.send(signal.SIGCONT)


def _is_ready(kubectl: Kubectl, name: str) -> bool:
    conditions = kubectl.get("pod", name)["status"].get("conditions", ())
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def _names(log: Path, what: str) -> bool:
    return what in log.read_text()


@contextmanager
def placed(
    folder: Path, program: list[str], kubectl_program: str, home: Path
) -> Iterator[tuple[Place, Kubectl]]:
    with ExitStack() as stack:
        place = Place(folder, program, stack)
        kubectl = Kubectl(kubectl_program, clean_environment(home, place.kubeconfig), "default")
        place.furnish(kubectl)
        yield place, kubectl


def _first_life(place: Place, kubectl: Kubectl) -> None:
    """Everything up to the moment at which the server dies."""
    at_one = {"nodeSelector": {"kubernetes.io/hostname": "one"}}
    kubectl("create", "-f", "-", given=place.pod("first", **at_one))
    runs(kubectl, "first")
    place.scheduler.stop()
    kubectl("create", "-f", "-", given=place.pod("waiting"))
    until(lambda: "resourceClaimStatuses" in kubectl.get("pod", "waiting")["status"])
    place.dray("server", "backup", str(place.folder / "copy"), "--kubeconfig", str(place.kubeconfig))
    kubectl("cordon", "one")
    place.scheduler.start()
    assert runs(kubectl, "waiting")["spec"]["nodeName"] == "two"
    kubectl("delete", "pod", "first", "--timeout=60s")
    kubectl("create", "-f", "-", given=place.pod("late"))
    assert runs(kubectl, "late")["spec"]["nodeName"] == "two"
    assert place.lines("violations") == []


def test_a_restored_server_hands_out_no_device_that_a_silent_node_uses(
    tmp_path: Path, kubectl_program: str, home: Path
) -> None:
    with placed(tmp_path, command(), kubectl_program, home) as (place, kubectl):
        _first_life(place, kubectl)
        begun = place.lines("journal")
        reach = ("--kubeconfig", str(place.kubeconfig))
        with place.stopped(place.two.agent):
            place.restore()

            def awaited() -> list[str]:
                return list(kubectl("get", "--raw", "/dray/restored/nodes").document["awaited"])

            eventually(lambda: awaited() == ["two"], place.one.agent.log.read_text)

            def held_back(name: str) -> bool:
                told = json.dumps(kubectl.get("pod", name)["status"])
                return "on node two, which has not said what is in use there" in told

            for name in ("first", "waiting"):
                eventually(partial(held_back, name), lambda: kubectl("describe", "pods").out)
            assert place.lines("journal") == begun, "nobody has begun anything"
        for name in ("first", "waiting"):
            eventually(partial(_is_ready, kubectl, name), lambda: kubectl("describe", "pods").out)
        eventually(lambda: len(place.lines("journal")) == len(begun) + 2, lambda: place.lines("journal"))
        assert place.lines("violations") == []
        kubectl("get", "pod", "late", fails=True)
        eventually(
            lambda: len(kubectl.get("preparations")["items"]) == 2, lambda: kubectl.get("preparations")
        )
        assert "ledger and claims agree" in place.dray("doctor", "ledger", *reach)

        def settled() -> bool:
            return bool(kubectl("get", "--raw", "/dray/restored").document["settled"])

        eventually(settled, place.server.log.read_text)
        assert "no node is missing" in place.dray("doctor", "restore", *reach)


def test_without_the_waiting_a_device_is_used_twice(
    tmp_path: Path, kubectl_program: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the same steps with a broken build, or the one before proves nothing."""
    monkeypatch.setattr("tests.e2e.processes.command", lambda *words: [*BROKEN, *words])
    with placed(tmp_path, BROKEN, kubectl_program, home) as (place, kubectl):
        _first_life(place, kubectl)
        with place.stopped(place.two.agent):
            place.restore()
            eventually(lambda: bool(place.lines("violations")), lambda: kubectl("describe", "pods").out)
