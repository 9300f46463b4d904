"""Sockets with no driver behind them: each is told as what it is, in a line, and soon."""

from __future__ import annotations

import asyncio
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dray.driver.conformance import driver_client
from dray.driver.conformance.driver_client import identify_driver
from dray.errors import InputError
from tests.contract.kitted import short_folder


class Http(socketserver.BaseRequestHandler):
    """Speaks another language."""

    def handle(self) -> None:
        self.request.recv(100)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


class HangsUp(socketserver.BaseRequestHandler):
    """Closes every line at once."""


@contextmanager
def listening(path: Path, shape: type[socketserver.BaseRequestHandler]) -> Iterator[None]:
    with socketserver.UnixStreamServer(str(path), shape) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


async def told(path: Path) -> str:
    with pytest.raises(InputError) as refused:
        await identify_driver(path, "gpu.example.com")
    return str(refused.value)


@pytest.mark.parametrize("shape", [Http, HangsUp])
def test_what_does_not_speak_grpc_is_told(shape: type[socketserver.BaseRequestHandler]) -> None:
    with short_folder() as folder, listening(folder / "other.sock", shape):
        path = folder / "other.sock"
        said = asyncio.run(told(path))
    reason = "the process that listens there does not answer gRPC calls, or not in time"
    assert said == f"no driver answers at `{path}`: {reason}"


def test_what_says_nothing_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_client, "CALL_TIMEOUT_SECONDS", 0.3)
    with short_folder() as folder, socket.socket(socket.AF_UNIX) as silent:
        path = folder / "silent.sock"
        silent.bind(str(path))
        silent.listen()
        said = asyncio.run(told(path))
    assert said == f"no driver answers at `{path}`: it does not answer GetInfo within 0.3 seconds"


def test_what_is_no_socket_or_serves_nobody_is_told() -> None:
    with short_folder() as folder:
        (folder / "file").touch()
        with socket.socket(socket.AF_UNIX) as ended:
            ended.bind(str(folder / "ended"))
        long = folder / ("x" * 110)
        wanted = {
            folder / "none": f"there is no socket `{folder}/none`; is the driver running?",
            folder / "file": f"`{folder}/file` is no socket",
            folder / "file" / "below": f"`{folder}/file/below` cannot be used: Not a directory",
            folder / "ended": f"nobody listens at `{folder}/ended`: the driver that made it has ended",
            long: f"the path of a socket may have 107 bytes, `{long}` has {len(str(long))}",
        }
        assert {path: asyncio.run(told(path)) for path in wanted} == wanted
