"""Rows H04 to H06: how drivers of other frameworks failed before the first claim came."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from dray.client.client import Client
from dray.driver import DriverService, DriverServiceOptions
from dray.driver.service.grpc_servers import build_socket_paths
from dray.errors import InputError
from dray.wire.unix_sockets import MAX_SOCKET_PATH_BYTES
from tests.unit.driver.driver_node import DRIVER, NODE, Gpu, open_driver_node

LONG = f"{'a' * 51}.example.com"
POD_UID = "0f2b8c1e-5a64-4be0-9a06-3f7a5a2d8c11"


# --- H04: #139166, #139623: a long driver name and a pod's uid made a path that no socket can have ---


def test_h04_long_names_and_pod_uids_give_paths_that_sockets_can_have() -> None:
    plugins, registry = Path("/var/lib/kubelet/plugins"), Path("/var/lib/kubelet/plugins_registry")
    assert len(LONG) == 63
    found = [
        build_socket_paths(name, plugins, registry, instance)
        for name in (LONG, LONG.replace("a", "b"), DRIVER)
        for instance in ("", POD_UID, POD_UID.replace("0", "1"))
    ]
    paths = [each for sockets in found for each in (sockets.registration, sockets.endpoint)]
    assert max(len(os.fsencode(each)) for each in paths) <= MAX_SOCKET_PATH_BYTES
    assert len(set(paths)) == len(paths)
    assert build_socket_paths(LONG, plugins, registry, POD_UID) == found[1]
    assert {each.parent for each in paths if each.parent != registry} > {plugins / DRIVER}


def test_h04_a_driver_with_a_long_name_is_served_in_a_deep_directory() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:

            class Long(Gpu):
                name = LONG

            deep = node.root / ("d" * 30)
            node.transport = node.server.connect(LONG)
            async with node.run_driver(
                Long(), plugins=deep / "p", registry=deep / "r", instance=POD_UID
            ) as agent:
                registered = await agent.registry.call(
                    "GetInfo", agent.registry.service.get_message_class("InfoRequest")(), timeout=20
                )
                assert registered.name == LONG
                assert len(registered.endpoint) <= MAX_SOCKET_PATH_BYTES
                assert Path(registered.endpoint).is_socket()
                assert (await agent.prepare(("0" * 8, "none")))["0" * 8].error

    asyncio.run(scenario())


# --- H05: #127194: without a client the helper started, and failed at the first claim ---


def test_h05_without_a_client_a_driver_does_not_start() -> None:
    async def scenario() -> None:
        missing: Any = None
        with pytest.raises(InputError, match="needs a client of the API server"):
            DriverService(Gpu(), missing, DriverServiceOptions(node=NODE))

    asyncio.run(scenario())


# --- H06: #141105: an old socket that could not be removed was told as "address already in use" ---


def test_h06_an_old_socket_that_cannot_be_removed_is_reported_as_such(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            async with node.run_driver():
                pass
            home = node.options.plugins / DRIVER
            unlink = Path.unlink

            def denied(self: Path, missing_ok: bool = False) -> None:
                if self == home / "dra.sock":
                    raise PermissionError(13, "Permission denied")
                unlink(self, missing_ok=missing_ok)

            _leave_socket(home / "dra.sock")
            monkeypatch.setattr(Path, "unlink", denied)
            kit = DriverService(Gpu(), Client(node.transport), node.options)
            with pytest.raises(InputError, match=r"dra\.sock` cannot be removed: Permission denied"):
                await kit.run()

    asyncio.run(scenario())


def test_h06_another_file_at_the_path_of_a_socket_stays_and_is_reported() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            home = node.options.plugins / DRIVER
            home.mkdir(parents=True, mode=0o700)
            (home / "dra.sock").write_text("mine")
            kit = DriverService(Gpu(), Client(node.transport), node.options)
            with pytest.raises(InputError, match="is in the way and is not a socket"):
                await kit.run()
            assert (home / "dra.sock").read_text() == "mine"

    asyncio.run(scenario())


def test_h06_the_socket_of_a_process_that_was_killed_is_no_obstacle() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            home = node.options.plugins / DRIVER
            home.mkdir(parents=True, mode=0o700)
            _leave_socket(home / "dra.sock")
            async with node.run_driver() as agent:
                assert await agent.prepare_ok(await node.create_claim("c"), "c")

    asyncio.run(scenario())


def _leave_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
