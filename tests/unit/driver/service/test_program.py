"""A driver as a program: commands, options, errors, and a real process beside a real server."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dray.api.resource import ResourceSlice
from dray.client.client import Client
from dray.client.config.kubeconfig import load_client_config
from dray.client.transports.http import HttpTransport
from dray.cluster.services.api_server import ServerProcessOptions, open_server
from dray.driver import Driver, device
from dray.driver.service import agent_directories
from dray.driver.service.grpc_servers import build_socket_paths
from dray.driver.service.program import main
from dray.wire.grpc_services import REGISTRATION, GrpcStub
from dray.wire.unix_sockets import open_channel
from tests.contract.documents import node
from tests.unit.driver.driver_server import wait_until

PROGRAM = '''
from dray.driver import Driver, Ready, device, run

class Dice(Driver):
    """Rolls dice."""

    name = "dice.example.com"

    def devices(self):
        yield device("d6", attributes={"sides": 6, "node": self.node})

    def prepare(self, claim):
        return [Ready(got, env={"DIE": got.device}) for got in claim.devices]

if __name__ == "__main__":
    run(Dice)
'''


ENDLESS = "import sys, time; print('begun', file=sys.stderr, flush=True); time.sleep(600)"


class Colour(msgspec.Struct):
    """Parameters."""

    colour: str = "ivory"


class Dice(Driver):
    """Rolls dice."""

    name = "dice.example.com"
    parameters = Colour

    def devices(self) -> Any:
        yield device("d6", attributes={"node": self.node})


def test_help_shows_the_description_and_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(Dice, ["--help"]) == 0
    output = capsys.readouterr().out
    assert "Rolls dice." in output
    for command in ("run", "devices", "schema", "webhook"):
        assert f"\n  {command} " in output
    assert main(Dice, ["run", "--help"]) == 0
    output = capsys.readouterr().out
    for option in (
        "--node",
        "--kubeconfig",
        "--plugins-registry",
        "--cdi-dir",
        "--metrics-address",
        "NODE_NAME",
    ):
        assert option in output


def test_devices_are_shown_as_they_would_be_published(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(Dice, ["devices", "--node", "node-b"]) == 0
    (slice_,) = yaml.safe_load_all(capsys.readouterr().out)
    assert slice_["spec"]["nodeName"] == "node-b"
    assert slice_["spec"]["devices"] == [{"name": "d6", "attributes": {"node": {"string": "node-b"}}}]


def test_the_schema_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(Dice, ["schema"]) == 0
    assert "colour" in json.loads(capsys.readouterr().out)["$defs"]["Colour"]["properties"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "error: which node is this? Give `--node NAME` or set NODE_NAME"),
        (["--node", "n", "--kubeconfig", "/no/such"], "error: cannot read the kubeconfig `/no/such`"),
        (["--nodes", "n"], "error: No such option '--nodes'"),
        (["runn"], "error: No such command 'runn'"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    assert main(Dice, arguments) == 2
    output = capsys.readouterr().err
    assert output.startswith(expected)
    assert output.count("\n") == 1


def to_nobody(folder: Path) -> str:
    """Return a kubeconfig for a server that does not exist."""
    config = folder / "config"
    config.write_text(
        yaml.safe_dump(
            {
                "contexts": [{"name": "c", "context": {"cluster": "c"}}],
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
                "current-context": "c",
            }
        )
    )
    return str(config)


@pytest.mark.parametrize("option", ["--plugins", "--plugins-registry", "--state-dir"])
def test_a_directory_that_cannot_be_created_is_a_one_line_error(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(tempfile.mkdtemp(prefix="dray-"))  # short enough for sockets
    (root / "file").touch()
    try:
        places = {"--plugins": root / "p", "--plugins-registry": root / "r", "--state-dir": root / "s"}
        places[option] = root / "file" / "sub"
        arguments = ["--node", "n", "--kubeconfig", to_nobody(tmp_path)]
        for name, place in places.items():
            arguments += [name, str(place)]
        assert main(Dice, arguments) == 2
    finally:
        shutil.rmtree(root, ignore_errors=True)
    output = capsys.readouterr().err.splitlines()[-1]
    assert output.startswith("error: cannot make the directory `")
    assert f"`{root / 'file'}`: File exists; choose another place" in output


def test_a_method_that_never_ends_does_not_keep_the_process(tmp_path: Path) -> None:
    (tmp_path / "dice.py").write_text(PROGRAM.replace("yield device(", f"{ENDLESS}; yield device("))
    root = Path(tempfile.mkdtemp(prefix="dray-"))
    places = ("--plugins", root / "p", "--plugins-registry", root / "r", "--cdi-dir", root / "cdi")
    arguments = ["--node", "n", "--kubeconfig", to_nobody(tmp_path), *map(str, places)]
    process = subprocess.Popen(
        [sys.executable, "-m", "dice", *arguments], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        while process.stderr.readline() not in ("begun\n", ""):
            pass
        process.send_signal(signal.SIGTERM)
        _, output = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "a method of the driver does not end; leaving without it" in output
    finally:
        process.kill()
        shutil.rmtree(root, ignore_errors=True)


def test_a_driver_with_a_bad_name_or_no_name_does_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:

    class Nameless(Driver):
        pass

    class Bad(Driver):
        name = "not a name"

    arguments = ["--node", "n", "--kubeconfig", to_nobody(tmp_path)]
    assert main(Nameless, arguments) == 2
    assert "Nameless.name: a driver needs a name, for example `gpu.example.com`" in capsys.readouterr().err
    assert main(Bad, arguments) == 2
    assert "Bad.name: `not a name`: " in capsys.readouterr().err


def build_roots(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name / "plugins_registry").mkdir(parents=True)


def test_a_driver_refuses_to_guess_between_an_agent_of_dray_and_a_kubelet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build_roots(tmp_path, "dray-node", "kubelet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(agent_directories, "KUBELET_DIR", tmp_path / "kubelet")
    assert main(Dice, ["--node", "n", "--kubeconfig", to_nobody(tmp_path)]) == 2
    (output,) = capsys.readouterr().err.splitlines()
    agent, kubelet = tmp_path / "dray-node", tmp_path / "kubelet"
    assert output == (
        f"error: which agent is this driver for? There are the directories `{agent}` (of `dray node`) and "
        f"`{kubelet}` (of a kubelet); choose one with `--kubelet-dir {agent}` or `--kubelet-dir {kubelet}`, "
        "or name the directories with `--plugins` and `--plugins-registry`"
    )


def test_the_log_begins_with_the_cluster_and_the_directories(tmp_path: Path) -> None:
    root = Path(tempfile.mkdtemp(prefix="dray-"))  # short enough for sockets
    # A kubelet of the machine that runs the test must not be found.
    without_kubelet = (
        "from pathlib import Path\n"
        "from dray.driver.service import agent_directories\n"
        f"agent_directories.KUBELET_DIR = Path({str(root / 'kubelet')!r})\n"
    )
    (tmp_path / "dice.py").write_text(without_kubelet + PROGRAM)
    build_roots(root, "dray-node")
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "dice.py"), "--node", "n", "--kubeconfig", to_nobody(tmp_path)],
        stderr=subprocess.PIPE,
        cwd=root,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        while "serving" not in process.stderr.readline():
            assert process.poll() is None
        assert (root / "dray-node" / "plugins" / "dice.example.com" / "dra.sock").is_socket()
    finally:
        process.kill()
        process.communicate()
        shutil.rmtree(root, ignore_errors=True)
    said = (
        f"server=http://127.0.0.1:9 context=c kubeconfig={tmp_path}/config plugins={root}/dray-node/plugins"
    )
    assert "starting driver=dice.example.com" in line
    assert said in line
    assert f"registry={root}/dray-node/plugins_registry cdi=/var/run/cdi" in line


def test_a_driver_runs_as_a_process_and_ends_on_a_signal() -> None:
    async def scenario(root: Path) -> None:
        (root / "dice.py").write_text(PROGRAM)
        async with open_server(ServerProcessOptions(root / "server", "memory:", port=0)) as server:
            client = Client(HttpTransport(load_client_config(str(server.kubeconfig))))
            await client.create(node("node-a"))
            environment = {**os.environ, "NODE_NAME": "node-a", "KUBECONFIG": str(server.kubeconfig)}
            places = ("--plugins", "p", "--plugins-registry", "r", "--cdi-dir", "cdi")
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "dice",
                *places,
                "--metrics-address",
                "127.0.0.1:0",
                cwd=root,
                env=environment,
                stderr=subprocess.PIPE,
            )
            try:
                (found,) = await wait_until(
                    lambda: _slices(client), lambda slices: len(slices) == 1 or process.returncode is not None
                )
                assert found.spec.devices[0].attributes["node"].string_value == "node-a"
                sockets = build_socket_paths("dice.example.com", Path("p"), root / "r")
                async with open_channel(sockets.registration) as line:
                    stub = GrpcStub(line, REGISTRATION)
                    plugin = await stub.call(
                        "GetInfo", REGISTRATION.get_message_class("InfoRequest")(), timeout=20
                    )
                assert (plugin.name, plugin.endpoint) == (
                    "dice.example.com",
                    str(root / "p" / "dice.example.com" / "dra.sock"),
                )
            finally:
                if process.returncode is None:
                    process.send_signal(signal.SIGTERM)
                _, output = await process.communicate()
            assert (process.returncode, "Traceback" in output.decode()) == (0, False), output.decode()
            assert "serving" in output.decode()
            assert "serving metrics address=127.0.0.1:" in output.decode()
            assert len(await _slices(client)) == 1, "a driver that is updated keeps its slices"
            await client.close()

    root = Path(tempfile.mkdtemp(prefix="dray-"))
    try:
        asyncio.run(scenario(root))
    finally:
        shutil.rmtree(root, ignore_errors=True)


async def _slices(client: Client) -> list[ResourceSlice]:
    return list((await client.list(ResourceSlice)).items)
