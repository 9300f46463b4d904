"""S-14: a server is killed again and again while clients write; nothing is stored without a line of audit.

Every request names itself in the header `Audit-Id` and in the object it makes, so that objects and lines can
be held against each other: what is stored must have been noted before (`received`), what was acknowledged
must have its outcome (`complete`), and the chain must hold through all crashes.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from bench.lean import Address, connect, packed
from dray.api.json_text import write_json
from dray.server.audit import ChainReport, list_log_files, verify_files
from tests.faults.server.hosted import Hosted

MAPS = "/api/v1/namespaces/default/configmaps"


@dataclass
class Record:
    """What clients observed, and what the log has."""

    kills: int = 0
    acknowledged: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    unaudited: set[str] = field(default_factory=set)
    untold: set[str] = field(default_factory=set)
    verdict: ChainReport | None = None

    @property
    def sound(self) -> bool:
        whole = self.verdict is not None and self.verdict.is_intact
        return whole and not self.unaudited and not self.untold and self.acknowledged <= self.stored

    def __str__(self) -> str:
        verdict = self.verdict
        chain = (
            "no log"
            if verdict is None
            else f"{verdict.lines} lines, chain {'holds' if verdict.is_intact else 'BROKEN'}"
        )
        return (
            f"{self.kills} kills, {len(self.acknowledged)} writes acknowledged, {len(self.stored)} stored: "
            f"{len(self.acknowledged - self.stored)} lost, {len(self.unaudited)} stored without a line, "
            f"{len(self.untold)} acknowledged without their outcome; {chain}"
        )


async def campaign(folder: Path, kills: int, seed: int, clients: int = 8) -> Record:
    """Write and kill, then compare."""
    random, record = Random(seed), Record()
    for round_ in range(kills):
        server = Hosted(folder)
        writing = asyncio.create_task(_written(server.address(), f"{round_}", clients, record))
        await asyncio.sleep(0.2 + random.random())
        server.kill()
        record.kills += 1
        await writing
    server = Hosted(folder)
    try:
        record.stored = await _stored(server.address())
    finally:
        server.stop()
    _compare(folder / "audit.log", record)
    return record


async def _written(address: Address, run: str, clients: int, record: Record) -> None:
    async def client(number: int) -> None:
        try:
            wire = await connect(address)
            for count in range(1_000_000):
                name = f"w-{run}-{number}-{count}"
                code, _ = await wire.call(_creation(name))
                assert code == 201, code
                record.acknowledged.add(name)
        except (ConnectionError, OSError):
            return

    await asyncio.gather(*map(client, range(clients)))


def _creation(name: str) -> bytes:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    request = packed("POST", MAPS, write_json(body))
    return request.replace(b"\r\n\r\n", f"\r\naudit-id: {name}\r\n\r\n".encode(), 1)


async def _stored(address: Address) -> set[str]:
    wire = await connect(address)
    code, body = await wire.call(packed("GET", MAPS))
    wire.transport.abort()
    assert code == 200, body
    return {name for item in json.loads(body)["items"] if (name := item["metadata"]["name"]).startswith("w-")}


def _compare(path: Path, record: Record) -> None:
    files = list_log_files(path)
    record.verdict = verify_files(files)
    received, complete = set(), set()
    for file in files:
        for line in file.read_bytes().splitlines():
            try:
                told = json.loads(line)
            except ValueError:
                continue  # torn by a kill; the verdict is about that
            if told["event"] == "received":
                received.add(told["id"])
            elif told["event"] == "complete" and told["code"] == 201:
                complete.add(told["id"])
    record.unaudited = record.stored - received
    record.untold = record.acknowledged - complete
