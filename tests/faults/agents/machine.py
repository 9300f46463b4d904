"""The processes of one node and its server: started, killed, rebooted; and its checkpoint, damaged."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import socket
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import msgspec

from dray.durable import StateFile
from dray.node.claims.checkpoint import FILE, VERSION
from dray.node.containers.runtime.process import ProcessRuntime
from dray.node.containers.runtime.shim import processes
from tests.faults.agents.driver import NODE
from tests.faults.agents.journal import tell

LONGEST = 90.0
DRIVERS = {"kit.example.com": "kit", "plain.example.com": "plain"}
SPOILS = ("torn", "flipped", "deleted", "old copy", "forgotten version", "wrong checksum", "newer version")


class Process:
    """A program that is killed and started again; its output goes to a file."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log, self._arguments = log, arguments
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, *more: str) -> None:
        with self._log.open("ab") as lines:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, *self._arguments, *more, stdout=lines, stderr=lines
            )

    async def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(how)
            await self.ended()

    async def ended(self) -> int:
        assert self.process is not None
        async with asyncio.timeout(LONGEST):
            return await self.process.wait()

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def said(self) -> str:
        return self._log.read_text() if self._log.exists() else ""


class Machine:
    """A node with an agent, drivers and containers, and the server they all know."""

    def __init__(self, root: Path, chance: random.Random, broken: str = "") -> None:
        self._root, self._chance, self._broken = root, chance, broken
        self.journal = root / "journal"
        self.checkpoint = root / "agent" / "checkpoint"
        self._port, self._boots = _free_port(), 0
        self.deaths: Counter[str] = Counter()
        self.spoiled: Counter[str] = Counter()
        self.breaches: list[str] = []
        self._copies: list[bytes] = []

    @property
    def boot(self) -> str:
        return f"boot-{self._boots}"

    @property
    def kubeconfig(self) -> str:
        return str(self._root / "data" / "admin.kubeconfig")

    # --- the server ---

    async def start_server(self) -> None:
        data, port = str(self._root / "data"), str(self._port)
        self._server = Process(self._root / "server.log", "-m", "dray", "server", "--data-dir", data)
        said = self._server.said().count("https://")
        await self._server.start("--port", port)
        async with asyncio.timeout(LONGEST):
            while self._server.said().count("https://") == said:
                assert self._server.is_running, self._server.said()[-2000:]
                await asyncio.sleep(0.05)

    async def stop_server(self, how: signal.Signals = signal.SIGKILL) -> None:
        await self._server.kill(how)

    async def credentials(self, user: str, *groups: str) -> str:
        """The kubeconfig of a user."""
        more = [word for group in groups for word in ("--group", group)]
        data = ("--data-dir", str(self._root / "data"))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dray", "server", "credentials", user, *more, *data),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate()
        file = self._root / f"{user.replace(':', '-')}.kubeconfig"
        file.write_bytes(said)
        return str(file)

    # --- the node ---

    async def furnish(self) -> None:
        """Everything that a node needs is there; nothing runs yet."""
        await self.start_server()
        for name in ("r", "p"):
            (self._root / name).mkdir(mode=0o700)
        groups = {name: (f"dray:driver:{name}", "dray:drivers", f"dray:on-node:{NODE}") for name in DRIVERS}
        node, *files = await asyncio.gather(
            self.credentials(f"system:node:{NODE}", "system:nodes"),
            *(self.credentials(name, *groups[name]) for name in DRIVERS),
        )
        agent = ("-m", "tests.faults.agents.agent", str(self._root), node)
        self.agent = Process(self._root / "agent.log", *agent)
        self._drivers = {}
        for (name, how), file in zip(DRIVERS.items(), files, strict=True):
            program = ("-m", "tests.faults.agents.driver", how, name, str(self._root), file)
            self._drivers[name] = Process(self._root / f"{name}.log", *program)

    async def power_on(self) -> None:
        """A boot of the machine: no file of a boot is left, drivers and agent are started."""
        self._boots += 1
        shutil.rmtree(self._root / "cdi", ignore_errors=True)
        tell(self.journal, "machine", "reboot", self.boot)
        for driver in self._drivers.values():
            await driver.start(self.boot)
        await self.start_agent()

    async def start_agent(self) -> None:
        self._began = self.agent.said().count("takes pods")
        await self.agent.start(self.boot, *([self._broken] if self._broken else []))

    async def works(self) -> None:
        """Wait until the agent takes pods, as long as it runs."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST):
                while self.agent.is_running and self.agent.said().count("takes pods") == self._began:
                    await asyncio.sleep(0.05)

    async def power_off(self) -> None:
        """Everything that runs on the machine is gone at once."""
        await self.agent.kill()
        for driver in self._drivers.values():
            await driver.kill()
        await self._end_containers()

    async def _end_containers(self) -> None:
        """Kill all of them, so that none writes any more: shims first, then their containers."""
        mark = f"{self._root}/agent/containers".encode()
        for _ in range(3):
            for pid in processes.list_processes():
                with suppress(OSError):
                    there = Path(f"/proc/{pid}")
                    if mark in (there / "cmdline").read_bytes() + (there / "environ").read_bytes():
                        os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.05)

    async def clear(self) -> None:
        """End all of it."""
        await self.power_off()
        await self.stop_server()
        runtime = ProcessRuntime(self._root / "agent" / "containers")
        for found in await runtime.list_containers():
            await runtime.remove(found.id)
        await runtime.close()

    # --- the checkpoint ---

    def copy(self) -> None:
        """Keep the checkpoint as it is now."""
        with suppress(FileNotFoundError):
            self._copies.append(self.checkpoint.read_bytes())

    async def spoil(self, how: str) -> None:
        """Do something to the checkpoint; no agent runs."""
        if not self.checkpoint.exists():
            return
        self.spoiled[how] += 1
        whole = self.checkpoint.read_bytes()
        place = self._chance.randrange(len(whole))
        if how == "newer version":
            await self._refused(whole)
        elif how == "deleted":
            self.checkpoint.unlink()
        elif how == "old copy" and self._copies:
            self.checkpoint.write_bytes(self._chance.choice(self._copies[-8:]))
        elif how == "forgotten version":
            StateFile(FILE.what, 0).write(self.checkpoint, _content(whole))
        elif how == "wrong checksum":
            self.checkpoint.write_bytes(whole.replace(b"crc32:", b"crc32:0", 1))
        elif how == "torn":
            self.checkpoint.write_bytes(whole[:place])
        elif how == "flipped":
            byte = bytes([whole[place] ^ 1 << self._chance.randrange(8)])
            self.checkpoint.write_bytes(whole[:place] + byte + whole[place + 1 :])

    async def _refused(self, whole: bytes) -> None:
        """A checkpoint of a later program: the agent must not start, and must say why."""
        StateFile(FILE.what, VERSION + 1).write(self.checkpoint, _content(whole))
        written, before = self.checkpoint.read_bytes(), len(self.agent.said())
        lines = self.journal.read_text().count(" unprepare ")
        await self.start_agent()
        code = await self.agent.ended()
        said = self.agent.said()[before:]
        if code == 0 or f"has version {VERSION + 1}" not in said or "Traceback" in said:
            self.breaches.append(f"a later checkpoint: ended with {code} and said {said[-400:]!r}")
        if self.checkpoint.read_bytes() != written:
            self.breaches.append("a later checkpoint was written over")
        if self.journal.read_text().count(" unprepare ") != lines:
            self.breaches.append("something was given back by an agent that must not start")
        self.checkpoint.write_bytes(whole)


def _content(whole: bytes) -> object:
    """The record in the first line, without the changes after it."""
    return msgspec.json.decode(whole.partition(b"\n")[0])["content"]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port
