"""`dray server` in a process of its own, on a free port and with its files in a temporary folder."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.patience import ended

STARTS_IN = 30.0
"""Seconds after which a server that does not answer is given up."""


@dataclass(frozen=True)
class Running:
    """Where a server is and how to reach it."""

    url: str
    kubeconfig: Path
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def files(self) -> dict[str, Any]:
        """The certificates and the key of the administrator, as the kubeconfig holds them."""
        document: dict[str, Any] = yaml.safe_load(self.kubeconfig.read_text())
        return {**document["clusters"][0]["cluster"], **document["users"][0]["user"]}

    def context(self, folder: Path) -> ssl.SSLContext:
        """TLS as the administrator."""
        import base64

        files = self.files
        written = {}
        for name in ("client-certificate-data", "client-key-data", "certificate-authority-data"):
            written[name] = folder / name
            written[name].write_bytes(base64.b64decode(files[name]))
        context = ssl.create_default_context(cafile=str(written["certificate-authority-data"]))
        context.load_cert_chain(written["client-certificate-data"], written["client-key-data"])
        return context


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "dray", *arguments]


@contextmanager
def running(folder: Path, *options: str, ends: bool = False) -> Iterator[Running]:
    """A server with its data under `folder/data`; it ends with the block, or `ends` within it."""
    directory, log = folder / "data", folder / "log"
    kubeconfig = directory / "admin.kubeconfig"
    kubeconfig.unlink(missing_ok=True)
    arguments = command("server", "--data-dir", str(directory), "--port", "0", *options)
    with log.open("ab") as lines:
        process = subprocess.Popen(arguments, stdout=lines, stderr=lines, stdin=subprocess.DEVNULL)
    try:
        _wait(process, kubeconfig, log)
        server = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        yield Running(server, kubeconfig, process, log)
        assert ends or process.poll() is None, f"the server ended by itself:\n{log.read_text()}"
    finally:
        ended(process)
    text = log.read_text()
    assert "fault of the server" not in text, text


def _wait(process: subprocess.Popen[bytes], kubeconfig: Path, log: Path) -> None:
    end = time.monotonic() + STARTS_IN
    while not kubeconfig.exists():
        assert process.poll() is None, f"the server did not start:\n{log.read_text()}"
        assert time.monotonic() < end, f"the server does not answer:\n{log.read_text()}"
        time.sleep(0.05)


def clean_environment(home: Path, kubeconfig: Path) -> dict[str, str]:
    """An environment in which clients find this server and nothing of the person who runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "XDG_"))}
    return {**kept, "HOME": str(home), "KUBECONFIG": str(kubeconfig)}
