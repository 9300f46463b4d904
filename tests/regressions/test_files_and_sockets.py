"""S-11: access to the files and sockets of a node, and other files in their place."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dray.cluster.local.nodes import _choose_socket_directory
from dray.cluster.services.node_agents import NodeOptions, build_runtime
from dray.driver.preparing.cdi_files import ClaimCdiFiles
from dray.driver.preparing.prepared_claims import PreparedClaimStore
from dray.driver.preparing.prepared_records import PreparedClaimRecord
from dray.driver.service.grpc_servers import build_socket_paths
from dray.durable import CorruptFileError, read_regular_file, write_file_atomically
from dray.errors import InputError
from dray.node.claims.checkpoint import FILE, Checkpoint, LostCheckpoint
from dray.node.claims.record import ClaimsRecord
from dray.node.containers.runtime.process import ProcessRuntime
from dray.node.server.certificate import load_or_create_certificate
from dray.wire.unix_sockets import secure_socket_directory
from tests.unit.driver.driver_node import DRIVER, DriverNode, open_driver_node
from tests.unit.node.agent_harness import AgentHarness, container, pod, run_on_node
from tests.unit.node.registry_harness import RegistryHarness, open_registry_harness

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRET = "not for you"


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="dray-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def modes(root: Path) -> dict[str, int]:
    """Everything below a directory, with its mode."""
    return {str(path.relative_to(root)): mode(path) for path in sorted(root.rglob("*"))}


def victim(folder: Path) -> Path:
    """A file of somebody's that must stay as it is."""
    path = folder / "victim"
    path.write_text(SECRET)
    return path


# --- modes ---


def test_s11_nobody_else_reads_what_an_agent_keeps(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent(port=0, listen_address="127.0.0.1"):
            await harness.create(pod("p", container("c", "sh", "-c", "echo hello; sleep 600"), claim="gpus"))
            await harness.claim("gpus", "p")
            await harness.phase("p", "Running")
        found = modes(harness.root)
        assert mode(harness.root) == 0o700
        assert found["checkpoint"] == found["serving.pem"] == found["lock"] == 0o600
        assert any(name.startswith("logs/") and name.endswith(".log") for name in found)
        assert any(name.startswith("containers/") and name.endswith("/orders") for name in found)
        open_to_others = {name: oct(each) for name, each in found.items() if each & 0o077}
        assert not {name for name in open_to_others if not name.endswith(".log")}, open_to_others
        assert all(int(each, 8) & 0o027 == 0 for each in open_to_others.values())

    before = os.umask(0o022)  # the modes above must not be owed to whoever runs this
    try:
        run_on_node(tmp_path, work)
    finally:
        os.umask(before)


@pytest.mark.parametrize("runtime", ["process", "fake"])
def test_s11_the_root_of_an_agent_is_made_for_its_owner(tmp_path: Path, runtime: str) -> None:
    """The runtime made it first, on the way to its own directory, and for everybody to look into."""
    root = tmp_path / "not" / "there" / "yet"
    build_runtime(NodeOptions("n", root, runtime=runtime))
    secure_socket_directory(root)
    assert [mode(each) for each in (root, root.parent, root.parent.parent)] == [0o700] * 3


def test_s11_nobody_else_reads_what_a_driver_keeps_and_everybody_its_cdi_files() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as agent:
            uid = await node.create_claim("c")
            await agent.prepare_ok(uid, "c")
            state = modes(node.state)
            assert state[f"prepared/{uid}.json"] == 0o600
            assert all(each & 0o077 == 0 for each in state.values()), state
            assert {mode(each) for each in node.options.cdi.iterdir()} == {0o644}
            assert not list(node.options.cdi.glob(".*")), "nothing half written is left"
            await agent.unprepare_ok(uid, "c")
            assert all(each & 0o077 == 0 for each in modes(node.state).values())

    asyncio.run(scenario())


def test_s11_sockets_of_a_driver_are_its_own() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver():
            sockets = build_socket_paths(DRIVER, node.options.plugins, node.options.registry)
            for path in (sockets.registration, sockets.endpoint):
                assert (mode(path.parent), mode(path)) == (0o700, 0o600)

    asyncio.run(scenario())


# --- what lies in the place of a file ---


def _link(path: Path, folder: Path) -> None:
    path.symlink_to(victim(folder))


def _dangling(path: Path, folder: Path) -> None:
    path.symlink_to(folder / "made by us")


def _pipe(path: Path, _folder: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path, _folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def _directory(path: Path, _folder: Path) -> None:
    path.mkdir()


PLANTED = [_link, _dangling, _pipe, _socket, _directory]
Plant = Callable[[Path, Path], None]


@pytest.mark.parametrize("plant", PLANTED)
def test_s11_a_state_file_is_a_file_and_nothing_else(folder: Path, plant: Plant) -> None:
    plant(folder / "state", folder)
    with pytest.raises(CorruptFileError):
        read_regular_file(folder / "state")


@pytest.mark.parametrize("plant", PLANTED[:-1])
def test_s11_what_is_written_takes_the_place_of_whatever_was_there(folder: Path, plant: Plant) -> None:
    path = folder / "state"
    plant(path, folder)
    plant(path.with_name(f".{path.name}.{os.getpid()}"), folder / "..")
    write_file_atomically(path, b"ours")
    assert (path.is_symlink(), path.read_bytes()) == (False, b"ours")
    assert not (folder / "made by us").exists()
    if (folder / "victim").exists():
        assert (folder / "victim").read_text() == SECRET


@pytest.mark.parametrize("plant", PLANTED)
def test_s11_a_checkpoint_that_is_no_file_is_set_aside(folder: Path, plant: Plant) -> None:
    path = folder / "checkpoint"
    plant(path, folder)
    checkpoint = Checkpoint(path)
    loaded = checkpoint.load()
    assert isinstance(loaded, LostCheckpoint)
    assert "it is kept as" in loaded.why
    asyncio.run(checkpoint.store(ClaimsRecord(boot_id="b")))
    assert (path.is_symlink(), mode(path), checkpoint.load()) == (False, 0o600, ClaimsRecord(boot_id="b"))


def test_s11_a_checkpoint_behind_a_link_is_not_believed(folder: Path) -> None:
    FILE.write(folder / "elsewhere", ClaimsRecord(boot_id="planted"))
    (folder / "checkpoint").symlink_to(folder / "elsewhere")
    assert isinstance(Checkpoint(folder / "checkpoint").load(), LostCheckpoint)


@pytest.mark.parametrize("plant", PLANTED[:-1])
def test_s11_a_certificate_is_not_written_through_a_link(folder: Path, plant: Plant) -> None:
    path = folder / "serving.pem"
    plant(path, folder)
    load_or_create_certificate("node-a", path, NOW)
    assert (path.is_symlink(), mode(path)) == (False, 0o600)
    assert not (folder / "made by us").exists()


def test_s11_a_key_that_others_could_read_is_not_used(folder: Path) -> None:
    path = folder / "serving.pem"
    first = load_or_create_certificate("node-a", path, NOW)
    assert load_or_create_certificate("node-a", path, NOW) == first
    path.chmod(0o644)
    assert load_or_create_certificate("node-a", path, NOW).fingerprint != first.fingerprint
    assert mode(path) == 0o600


@pytest.mark.parametrize("plant", PLANTED[:-1])
def test_s11_a_cdi_file_takes_the_place_of_a_link(folder: Path, plant: Plant) -> None:
    files = ClaimCdiFiles(folder / "cdi", DRIVER)
    (folder / "cdi").mkdir()
    plant(files.get_path("uid"), folder)
    files.write("uid", b"{}")
    assert (files.get_path("uid").is_symlink(), mode(files.get_path("uid"))) == (False, 0o644)
    assert not (folder / "made by us").exists()


@pytest.mark.parametrize("plant", PLANTED)
def test_s11_an_entry_of_a_driver_that_is_no_file_counts_as_begun(folder: Path, plant: Plant) -> None:
    book = PreparedClaimStore(folder / "state", ClaimCdiFiles(folder / "cdi", DRIVER), "boot")
    plant(book._get_record_path("uid"), folder)
    (trouble,) = book.recover(0.0)
    assert trouble.path == book._get_record_path("uid")
    assert book.list_records() == {"uid": PreparedClaimRecord(uid="uid")}
    assert not book._get_record_path("uid").is_symlink()


@pytest.mark.parametrize("name", ["lock"])
def test_s11_an_agent_does_not_follow_a_link_to_its_lock(tmp_path: Path, name: str) -> None:
    async def work(harness: AgentHarness) -> None:
        harness.root.mkdir(mode=0o700)
        (harness.root / name).symlink_to(tmp_path / "made by us")
        with pytest.raises(InputError, match="cannot use"):
            async with harness.agent():
                pass
        assert not (tmp_path / "made by us").exists()
        (harness.root / name).unlink()

    run_on_node(tmp_path, work)


# --- directories ---


@pytest.mark.parametrize("opened", [0o777, 0o770, 0o702])
def test_s11_an_agent_does_not_work_where_others_write(tmp_path: Path, opened: int) -> None:
    async def work(harness: AgentHarness) -> None:
        (harness.root / "containers").mkdir(mode=0o700, parents=True)
        harness.root.chmod(opened)
        with pytest.raises(InputError, match="may be written to by others"):
            async with harness.agent():
                pass

    run_on_node(tmp_path, work)


def test_s11_containers_are_not_kept_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "containers").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="not a link"):
        ProcessRuntime(tmp_path / "containers")


def test_s11_a_short_place_for_sockets_must_be_ours(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Its name follows from a path that others know; they could have made it before us."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(folder))
    long = folder / ("d" * 100)
    short = _choose_socket_directory(long)
    assert (short.parent, mode(short)) == (folder, 0o700)
    short.rmdir()
    short.symlink_to(folder)
    with pytest.raises(InputError, match="not a link"):
        _choose_socket_directory(long)


# --- sockets that change under our eyes ---


def _with_registry(scenario: Callable[[RegistryHarness], Awaitable[None]]) -> None:
    async def run() -> None:
        async with open_registry_harness() as registry:
            await scenario(registry)

    asyncio.run(run())


def test_s11_a_socket_that_becomes_a_link_is_let_go_and_not_called_again() -> None:
    async def scenario(registry: RegistryHarness) -> None:
        driver = await registry.driver()
        await registry.registered()
        path = driver.ways.registration()
        hidden = path.with_name(".hidden")
        path.rename(hidden)
        path.symlink_to(hidden)
        await registry.until(lambda: "is a link" in "".join(registry.lines))
        assert registry.registry.find_driver(driver.ways.name) is None
        path.unlink()
        hidden.rename(path)
        await registry.registered()

    _with_registry(scenario)


def test_s11_a_stale_socket_is_taken_over_and_a_file_is_not() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            paths = build_socket_paths(DRIVER, node.options.plugins, node.options.registry)
            _planted_sockets(node, paths.registration, paths.endpoint)
            async with node.run_driver() as agent:
                uid = await node.create_claim("c")
                await agent.prepare_ok(uid, "c")
                await agent.unprepare_ok(uid, "c")
            for path in (paths.registration, paths.endpoint):
                path.write_text(SECRET)
                with pytest.raises(InputError, match="is in the way and is not a socket"):
                    async with node.run_driver():
                        pass
                assert path.read_text() == SECRET
                path.unlink()

    asyncio.run(scenario())


def _planted_sockets(node: DriverNode, *paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _socket(path, node.root)


@pytest.mark.parametrize("which", ["registry", "plugins"])
def test_s11_a_driver_does_not_serve_where_others_write(which: str) -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            directory: Path = getattr(node.options, which)
            if which == "plugins":
                directory = directory / DRIVER
            directory.mkdir(mode=0o700, parents=True)
            directory.chmod(0o777)
            with pytest.raises(InputError, match="may be written to by others"):
                async with node.run_driver():
                    pass

    asyncio.run(scenario())
