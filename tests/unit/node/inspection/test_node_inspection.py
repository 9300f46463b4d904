"""Inspection of a node: real drivers at real sockets, CDI files, and the checkpoint of a kubelet."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dray.node.inspection.findings import CHECK_DESCRIPTIONS, FindingSeverity, NodeCheck, NodeFinding
from dray.node.inspection.metrics import METRIC_DEFINITIONS, record_inspection
from dray.node.inspection.node_inspection import NodePaths, find_problems, observe_node
from dray.telemetry.metrics import MetricsRegistry
from tests.e2e.plain_driver import PlainDriver, Ways
from tests.outside import ROOT

DRIVER = "gpu.example.com"
UID = "0f6c2b9e-8a51-4a8f-9d3e-6f2a0c1b7d55"
OTHER_UID = "7c0d3c34-51f5-4a0c-8a39-b1d7a5b0c6aa"
LATER = 4_000_000_000.0
"""Long after every file was written."""


def build_checkpoint(*claims: dict[str, Any]) -> str:
    """A checkpoint as a kubelet of 1.37 writes it."""
    header = {"kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1"}
    data = json.dumps({**header, "ClaimInfoStateList": list(claims)})
    return json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())})


def build_claim(uid: str, *cdi: str, **driver: Any) -> dict[str, Any]:
    device = {"PoolName": "p", "DeviceName": "d", "ShareID": None, "RequestNames": ["r"], "CDIDeviceIDs": cdi}
    return {
        "ClaimUID": uid,
        "ClaimName": "gpus",
        "Namespace": "ml",
        "PodUIDs": {"some-pod": {}},
        "DriverState": {DRIVER: {"Devices": [device], **driver}},
    }


def build_spec(*names: str) -> dict[str, Any]:
    devices = [{"name": name, "containerEdits": {"env": ["A=b"]}} for name in names]
    return {"cdiVersion": "0.5.0", "kind": f"{DRIVER}/claim", "devices": devices}


class Node:
    """The directories of a kubelet, below a short path."""

    def __init__(self, root: Path) -> None:
        self.paths = NodePaths(root / "k", (root / "etc", root / "run"))
        for path in (self.paths.registration, self.paths.plugins / DRIVER, *self.paths.cdi):
            path.mkdir(parents=True)

    def put_claims(self, *claims: dict[str, Any]) -> None:
        self.paths.checkpoint.write_text(build_checkpoint(*claims))

    def put_spec(self, name: str, content: dict[str, Any] | str, folder: int = 1) -> Path:
        path = self.paths.cdi[folder] / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def build_driver(self, **ways: Any) -> PlainDriver:
        return PlainDriver(Ways(DRIVER, self.paths.registration, self.paths.plugins / DRIVER, **ways))

    async def inspect(self, now: float = LATER) -> Sequence[NodeFinding]:
        return find_problems(await observe_node(self.paths, now))


@pytest.fixture
def node() -> Iterator[Node]:
    root = Path(tempfile.mkdtemp(prefix="dray-"))
    yield Node(root)
    shutil.rmtree(root)


def leave_socket(path: Path) -> None:
    """A socket whose process has ended."""
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))
        gone.listen()


def list_checks(findings: Sequence[NodeFinding]) -> list[tuple[str, str]]:
    return [(each.check.value, each.severity.value) for each in findings]


async def test_a_node_in_order_has_no_findings(node: Node):
    node.put_claims(build_claim(UID, f"{DRIVER}/claim={UID}-0"))
    node.put_spec("a.json", build_spec(f"{UID}-0"))
    driver = node.build_driver()
    await driver.start()
    try:
        seen = await observe_node(node.paths, LATER)
        assert find_problems(seen) == []
        assert seen.drivers == {DRIVER}
        assert [claim.label for claim in seen.claims or ()] == ["ml/gpus"]
    finally:
        await driver.stop()


async def test_the_inspection_registers_nothing(node: Node):
    driver = node.build_driver()
    await driver.start()
    try:
        await node.inspect()
        assert not driver.statuses
    finally:
        await driver.stop()


async def test_a_node_without_any_driver_is_in_order(node: Node):
    """A kubelet that never prepared a claim has no checkpoint."""
    assert await node.inspect() == []


async def test_a_directory_that_is_not_there_is_named(node: Node):
    node.paths.registration.rmdir()
    (found,) = await node.inspect()
    assert (found.check, found.severity) == (NodeCheck.DIRECTORIES, FindingSeverity.ERROR)
    assert str(node.paths.registration) in found.message
    assert "--kubelet-dir" in found.hint


async def test_dead_sockets_are_found_where_drivers_register_and_where_they_answer(node: Node):
    leave_socket(node.paths.registration / "gone-reg.sock")
    leave_socket(node.paths.plugins / DRIVER / "dra.sock")
    assert list_checks(await node.inspect()) == [("sockets", "warning"), ("leftovers", "warning")]


async def test_a_process_that_listens_and_does_not_answer_is_an_error(node: Node):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(node.paths.registration / "silent.sock"))
        silent.listen()
        (found,) = await node.inspect()
    assert (found.check, found.severity) == (NodeCheck.SOCKETS, FindingSeverity.ERROR)
    assert "GetInfo" in found.message


async def test_a_driver_that_names_a_dead_endpoint_is_an_error(node: Node):
    driver = node.build_driver(endpoint=str(node.paths.plugins / "nobody.sock"))
    await driver.start()
    try:
        (found,) = await node.inspect()
    finally:
        await driver.stop()
    assert (found.check, found.severity) == (NodeCheck.DRIVERS, FindingSeverity.ERROR)
    assert DRIVER in found.message
    assert "nobody.sock" in found.message


async def test_plugins_that_are_no_dra_drivers_are_left_alone(node: Node):
    driver = node.build_driver(type="CSIPlugin", endpoint="/nowhere/csi.sock")
    await driver.start()
    try:
        seen = await observe_node(node.paths, LATER)
    finally:
        await driver.stop()
    assert find_problems(seen) == []
    assert seen.drivers == set()


async def test_a_prepared_claim_needs_its_driver_and_its_devices(node: Node):
    node.put_claims(build_claim(UID, f"{DRIVER}/claim={UID}-0"))
    without_driver, without_file = await node.inspect()
    assert without_driver.check is without_file.check is NodeCheck.CLAIMS
    assert without_driver.message == f"claim ml/gpus is prepared, and its driver `{DRIVER}` is not there"
    assert f"`{DRIVER}/claim={UID}-0`, which no file describes" in without_file.message


async def test_a_driver_that_is_never_called_need_not_be_there(node: Node):
    node.put_claims(build_claim(UID, skipNodeOperations=["*"]))
    assert await node.inspect() == []


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        '{"Data": "{}", "Checksum": 1}',
        build_checkpoint(build_claim(UID))[:-20],
        json.dumps({"Data": "[]", "Checksum": zlib.crc32(b"[]")}),
    ],
    ids=["empty", "no data", "checksum", "torn", "no object"],
)
async def test_a_damaged_checkpoint_is_an_error(node: Node, content: str):
    node.paths.checkpoint.write_text(content)
    (found,) = await node.inspect()
    assert (found.check, found.severity) == (NodeCheck.CHECKPOINT, FindingSeverity.ERROR)
    assert "is damaged" in found.message


async def test_a_file_of_a_claim_that_is_gone_is_left_over(node: Node):
    node.put_claims()
    path = node.put_spec("a.json", build_spec(f"{UID}-0", f"{UID}-1"))
    (found,) = await node.inspect()
    assert list_checks([found]) == [("leftovers", "warning")]
    assert str(path) in found.message
    assert UID in found.message


async def test_a_file_that_was_just_written_is_not_left_over(node: Node):
    """A driver writes it before the kubelet records its devices."""
    node.put_claims()
    path = node.put_spec("a.json", build_spec(f"{UID}-0"))
    assert await node.inspect(now=os.stat(path).st_mtime + 1) == []


async def test_devices_that_do_not_belong_to_claims_are_not_left_over(node: Node):
    node.put_claims()
    node.put_spec("static.json", build_spec("gpu0", f"GPU-{UID}", "all"))
    assert await node.inspect() == []


async def test_without_a_checkpoint_nothing_is_called_left_over(node: Node):
    node.put_spec("a.json", build_spec(f"{UID}-0"))
    assert await node.inspect() == []


async def test_cdi_files_that_no_runtime_reads_are_errors(node: Node):
    node.put_spec("broken.json", "{")
    node.put_spec("one.json", build_spec("x"))
    node.put_spec("two.json", build_spec("x"))
    broken, twice = await node.inspect()
    assert list_checks([broken, twice]) == [("cdi-files", "error")] * 2
    assert "broken.json" in broken.message
    assert "one.json" in twice.message
    assert "two.json" in twice.message


async def test_a_later_directory_may_override_a_device(node: Node):
    node.put_spec("one.json", build_spec("x"), folder=0)
    node.put_spec("one.json", build_spec("x"), folder=1)
    assert await node.inspect() == []


async def test_the_checkpoint_of_a_real_kubelet_is_read(node: Node):
    """Written by kubelet 1.37 for a pod with one claim of a kit driver."""
    recorded = ROOT / "tests" / "unit" / "node" / "inspection" / "dra_manager_state.json"
    shutil.copyfile(recorded, node.paths.checkpoint)
    seen = await observe_node(node.paths, LATER)
    assert seen.faults == ()
    (claim,) = seen.claims or ()
    assert claim.called_drivers
    assert [name for _, name in claim.iter_cdi_devices()]


async def test_errors_come_first_and_metrics_count_them(node: Node):
    node.put_claims(build_claim(UID))
    node.put_spec("a.json", build_spec(f"{OTHER_UID}-0"))
    seen = await observe_node(node.paths, LATER)
    findings = find_problems(seen)
    assert list_checks(findings) == [("claims", "error"), ("leftovers", "warning")]
    metrics = MetricsRegistry(METRIC_DEFINITIONS)
    record_inspection(metrics, seen, findings, LATER)
    record_inspection(metrics, seen, findings[:1], LATER)
    lines = metrics.render().decode().splitlines()
    assert 'dray_doctor_node_findings{check="claims",severity="error"} 1.0' in lines
    assert 'dray_doctor_node_findings{check="leftovers",severity="warning"} 0.0' in lines
    assert "dray_doctor_node_claims 1.0" in lines


def test_every_check_is_described_in_the_guide():
    guide = (ROOT / "docs" / "guides" / "nodes.md").read_text("utf-8")
    for check in NodeCheck:
        assert f"| `{check}` | {CHECK_DESCRIPTIONS[check]} |" in guide
