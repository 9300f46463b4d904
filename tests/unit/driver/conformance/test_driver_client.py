"""Sockets without a driver behind them: each is a one-line error that names the cause."""

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
    """Answers with something that is not gRPC."""

    def handle(self) -> None:
        self.request.recv(100)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


class HangsUp(socketserver.BaseRequestHandler):
    """Closes every connection at once."""


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


async def message(path: Path) -> str:
    with pytest.raises(InputError) as refused:
        await identify_driver(path, "gpu.example.com")
    return str(refused.value)


@pytest.mark.parametrize("shape", [Http, HangsUp])
def test_a_server_without_grpc_is_an_error(shape: type[socketserver.BaseRequestHandler]) -> None:
    with short_folder() as folder, listening(folder / "other.sock", shape):
        path = folder / "other.sock"
        said = asyncio.run(message(path))
    reason = "the process that listens there does not answer gRPC calls, or not in time"
    assert said == f"no driver answers at `{path}`: {reason}"


def test_a_silent_server_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_client, "CALL_TIMEOUT_SECONDS", 0.3)
    with short_folder() as folder, socket.socket(socket.AF_UNIX) as silent:
        path = folder / "silent.sock"
        silent.bind(str(path))
        silent.listen()
        said = asyncio.run(message(path))
    assert said == f"no driver answers at `{path}`: it does not answer GetInfo within 0.3 seconds"


def test_a_file_that_is_no_socket_is_an_error() -> None:
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
        assert {path: asyncio.run(message(path)) for path in wanted} == wanted
