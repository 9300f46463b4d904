"""S-10: names, labels and texts of others, in every place of a node where they could be interpreted."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as some
from prometheus_client.parser import text_string_to_metric_families

from dray.cli.commands.operations import status
from dray.cli.output.text import sanitize_line
from dray.client.client import Client
from dray.clock import ManualClock
from dray.cluster.live.overview import (
    AllocatedDevice,
    ClusterOverview,
    NodeOverview,
    PodOverview,
    PoolOverview,
)
from dray.driver import Driver, Ready, device
from dray.driver.base import Got
from dray.driver.preparing.cdi_files import ClaimCdiFiles, sanitize_uid
from dray.driver.service.commands import COMMAND_BUILDERS
from dray.driver.service.driver_service import DriverService, DriverServiceOptions
from dray.errors import InputError
from dray.node import agent_metrics
from dray.node.agent_metrics import NodeAgentMetrics
from dray.node.containers.log_files import build_log_path
from dray.node.containers.log_reader import LogReadOptions, read_log
from dray.node.containers.runtime.base import ContainerId, ContainerLaunch, ContainerNotStarted
from dray.node.containers.runtime.process import ProcessRuntime
from dray.node.containers.runtime.shim.log import ContainerLogWriter as ContainerLog
from dray.node.plugins.driver_replies import sanitize_text
from dray.telemetry.logs import StructuredLogger
from dray.wire.grpc_services import DRA_V1, GrpcStub
from tests.unit.driver.driver_node import open_driver_node

HOSTILE = (
    "../../etc/passwd",
    "a/b",
    "..",
    "a\nb",
    "a\r\nkind: Secret\n---\n",
    "\x1b[2J\x1b]0;owned\x07",
    "$(touch owned)",
    "`id`;rm -rf .",
    'x"} 1\ndray_forged{a="b',
    "\u202egpj.exe",
    "a\0b",
    "ä" * 300,
)
DRIVER = "gpu.example.com"


# --- CDI files ---


@given(some.text(max_size=300) | some.sampled_from(HOSTILE))
def test_s10_no_uid_leads_out_of_the_directory_of_cdi_files(uid: str) -> None:
    files = ClaimCdiFiles(Path("/run/cdi"), DRIVER)
    path = files.get_path(uid)
    assert path.parent == Path("/run/cdi")
    assert re.fullmatch(r"gpu\.example\.com_[A-Za-z0-9-]{1,64}\.json", path.name)
    content = files.render_spec(uid, [Ready(Got("r", "", "p", "d"), env={"A": "b"})])
    assert content is not None
    (described,) = json.loads(content)["devices"]
    assert described["name"] == f"{sanitize_uid(uid)}-0"


@pytest.mark.parametrize("text", HOSTILE)
def test_s10_names_of_devices_and_pools_stay_what_they_are_in_cdi_files(tmp_path: Path, text: str) -> None:
    files = ClaimCdiFiles(tmp_path / "cdi", DRIVER)
    ready = [Ready(Got(text, text, text, text), env={"NAME": text.replace("\0", "")})]
    content = files.render_spec("uid", ready)
    assert content is not None
    files.write("uid", content)
    assert [each.name for each in (tmp_path / "cdi").iterdir()] == [f"{DRIVER}_uid.json"]
    assert json.loads(content)["devices"][0]["containerEdits"]["env"] == [f"NAME={text}".replace("\0", "")]


@pytest.mark.parametrize("name", [*HOSTILE, "a.example.com/../../x", "/etc", "-", ""])
def test_s10_a_driver_with_a_name_that_is_a_path_does_not_start(tmp_path: Path, name: str) -> None:
    async def scenario() -> None:
        class Odd(Driver):
            def devices(self) -> list[Any]:
                return []

        Odd.name = name
        async with open_driver_node() as node:
            with pytest.raises(InputError):
                DriverService(
                    Odd(), Client(node.transport), DriverServiceOptions("n", tmp_path, tmp_path, tmp_path)
                )

    asyncio.run(scenario())


# --- paths and shells of containers ---


def _launch(root: Path, name: str, *command: str, uid: str = "uid-1") -> ContainerLaunch:
    log = build_log_path(root / "logs", "ns", "pod", ContainerId(uid, name, 0))
    return ContainerLaunch(pod_uid=uid, pod_name="pod", namespace="ns", name=name, command=command, log=log)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("field", ["name", "uid"])
def test_s10_a_container_whose_name_is_a_path_is_not_started(tmp_path: Path, text: str, field: str) -> None:
    async def scenario() -> None:
        runtime = ProcessRuntime(tmp_path / "containers")
        answer = await runtime.start(_launch(tmp_path, **{"name": "c", "uid": "u", field: text}))
        assert isinstance(answer, ContainerNotStarted)
        await runtime.close()

    asyncio.run(scenario())
    assert [each.name for each in tmp_path.rglob("*")] == ["containers"]


@given(some.text(max_size=60) | some.sampled_from(HOSTILE), some.text(max_size=60))
def test_s10_the_log_of_a_container_lies_below_the_logs(one: str, other: str) -> None:
    path = build_log_path(Path("/logs"), one, other, ContainerId(one, other, 0))
    assert path.parent.parent.parent == Path("/logs")
    assert ".." not in path.parts


def test_s10_arguments_of_a_command_never_reach_a_shell(tmp_path: Path) -> None:
    words = ("printf", "%s|", *(text for text in HOSTILE if "\0" not in text))
    launch = _launch(tmp_path, "c", *words)

    async def scenario() -> None:
        runtime = ProcessRuntime(tmp_path / "containers")
        await runtime.start(launch)
        assert (await runtime.wait(launch.id)).code == 0
        await runtime.remove(launch.id)
        await runtime.close()

    asyncio.run(scenario())
    assert b"".join(read_log(launch.log, LogReadOptions())).decode() == "|".join([*words[2:], ""])
    assert not (tmp_path / "owned").exists()


# --- logs ---


def test_s10_a_container_cannot_forge_an_entry_of_its_log(tmp_path: Path) -> None:
    said = b"one\r\n\x1b[2Jtwo\n2020-01-01T00:00:00.000000000Z stderr F forged\nlast\n"
    log = ContainerLog(str(tmp_path / "0.log"), 10**6, 2)
    log.write_chunk(b"stdout", said)
    log.close()
    lines = (tmp_path / "0.log").read_bytes().splitlines()
    assert all(re.match(rb"20\d\d-\d\d-\d\dT[\d:.]+Z stdout F ", line) for line in lines)
    assert len(lines) == said.count(b"\n")
    assert b"".join(read_log(tmp_path / "0.log", LogReadOptions(stream="Stderr"))) == b""
    assert b"".join(read_log(tmp_path / "0.log", LogReadOptions())) == said


@pytest.mark.parametrize("json_lines", [False, True])
@pytest.mark.parametrize("text", HOSTILE)
def test_s10_whatever_is_logged_is_one_line_without_anything_a_terminal_obeys(
    text: str, json_lines: bool
) -> None:
    lines: list[bytes] = []

    def take(line: bytes) -> bool:
        lines.append(line)
        return True

    StructuredLogger(take, ManualClock(), json=json_lines).warning(
        "a claim is refused", claim=text, error=ValueError(text)
    )
    (line,) = lines
    written = line.decode()
    assert written.count("\n") == 1
    assert written.endswith("\n")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", written)


@pytest.mark.parametrize("text", HOSTILE)
def test_s10_what_drivers_say_is_one_line_in_events_and_statuses(text: str) -> None:
    told = sanitize_text(text)
    assert told.isprintable()
    assert len(told) <= 400


# --- what people see ---


@pytest.mark.parametrize("text", HOSTILE)
def test_s10_a_line_about_a_pod_is_one_line(text: str) -> None:
    """`dray up` tells what becomes of pods; why one waits is a text that others write."""
    assert sanitize_line(f"ml/p waits: {text}").isprintable()


@pytest.mark.parametrize("text", HOSTILE)
def test_s10_status_shows_as_many_lines_as_there_are_things(text: str) -> None:
    def shown(what: str) -> list[str]:
        device = AllocatedDevice(what, what, what, what, {what: what})
        pod = PodOverview(f"ml/{what}", "running", (device,))
        node = NodeOverview(what, "ready", (pod,), (PoolOverview(what, what, (what,), (what,)),))
        waiting = PodOverview(f"ml/{what}", "waiting", (), what)
        now = ClusterOverview((node,), (waiting,))
        return [*status.render_overview(now), *status.render_overview(now, wide=True)]

    lines = shown(text)
    assert len(lines) == len(shown("plain"))
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e]", "".join(lines))


# --- metrics ---


@pytest.mark.parametrize("text", HOSTILE)
def test_s10_labels_of_metrics_come_back_as_they_were(text: str) -> None:
    metrics = NodeAgentMetrics()
    metrics.add_callback(agent_metrics.CLAIMS_IN_USE, lambda: [((text,), 3.0)])
    families = text_string_to_metric_families(metrics.render().decode())
    found = [sample for family in families for sample in family.samples if text in sample.labels.values()]
    assert [sample.value for sample in found] == [3.0]
    assert b"\ndray_forged" not in metrics.render()


# --- YAML ---


@pytest.mark.parametrize("text", [each for each in HOSTILE if len(each) < 64])
def test_s10_devices_are_shown_as_yaml_that_says_what_they_say(text: str) -> None:
    class Odd(Driver):
        name = DRIVER

        def devices(self) -> list[Any]:
            return [device("gpu-0", attributes={"model": text})]

    (command,) = (each for made in COMMAND_BUILDERS if (each := made(Odd())).name == "devices")
    answer = CliRunner().invoke(command, ["--node", "node-a"], standalone_mode=False)
    assert answer.exception is None
    (document,) = yaml.safe_load_all(answer.output)
    assert document["kind"] == "ResourceSlice"
    assert document["spec"]["devices"][0]["attributes"]["model"] == {"string": text}


# --- what drivers ask the server for ---


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("namespace", ""),
        *((field, each) for field in ("name", "namespace") for each in (*HOSTILE, ".", "a/b")),
    ],
)
def test_s10_a_call_for_a_claim_whose_name_is_a_path_asks_the_server_nothing(field: str, name: str) -> None:
    """A namespace that was empty ended in a fault, and the server was asked for `..`."""

    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as line:
            asked = {"namespace": "default", "name": "c", "uid": "u", field: name}
            request = DRA_V1.methods["NodePrepareResources"].request(claims=[asked, {**asked, "uid": "v"}])
            answer = await GrpcStub(line.endpoint, DRA_V1).call("NodePrepareResources", request, timeout=30.0)
            assert all("there is no such claim" in each.error for each in answer.claims.values())
            assert "ERROR" not in node.log_text

    asyncio.run(scenario())
