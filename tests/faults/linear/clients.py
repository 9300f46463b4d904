"""Eight clients that send random requests and record the answers."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from typing import Protocol

from dray.store.errors import OutcomeUnknownError, StoreUnreachableError
from tests.faults.linear.host import Ask, Tell
from tests.faults.linear.operations import ABSENT, Kind, Op

CLIENTS = 8
KEYS = 20
KINDS: dict[Kind, int] = {"get": 30, "put": 20, "cas": 30, "delete": 10, "list": 10}
"""Each kind with how often it is asked, in percent."""


class Line(Protocol):
    """Somebody who answers, or raises `OutcomeUnknownError` when the line broke and `StoreUnreachableError`
    when nothing was sent.
    """

    async def ask(self, ask: Ask) -> Tell: ...


async def traffic(lines: list[Line], operations: int, seed: int) -> list[Op]:
    """Let the clients ask until there are so many operations; client n uses line n modulo their number."""
    history: list[Op] = []
    numbers = itertools.count(1)
    clients = [
        Client(client, lines[client % len(lines)], random.Random(f"{seed} {client}"), numbers)
        for client in range(CLIENTS)
    ]

    async def run(client: Client) -> None:
        while len(history) < operations:
            op = client.next()
            history.append(op)
            await client.do(op)

    await asyncio.gather(*(run(client) for client in clients))
    return history


class Client:
    """Sends one request after the other."""

    def __init__(self, name: int, line: Line, rng: random.Random, numbers: itertools.count[int]) -> None:
        self._name = name
        self._line = line
        self._rng = rng
        self._numbers = numbers
        self._seen: dict[int, tuple[int, int]] = {}
        """Key to the value seen last and its revision."""

    def next(self) -> Op:
        kind = self._rng.choices(list(KINDS), list(KINDS.values()))[0]
        if kind == "list":
            return Op(self._name, kind)
        key = self._rng.randrange(KEYS)
        if kind in ("get", "delete"):
            return Op(self._name, kind, key)
        expected = self._seen.get(key, (ABSENT, 0))[0]
        return Op(self._name, kind, key, next(self._numbers), expected)

    async def do(self, op: Op) -> None:
        mod_revision = self._seen.get(op.key, (ABSENT, 0))[1]
        ask = Ask(next(self._numbers), op.kind, op.key, op.value, mod_revision)
        op.begun = time.monotonic()
        try:
            told = await self._line.ask(ask)
        except OutcomeUnknownError:
            await asyncio.sleep(0.01)
            return
        except StoreUnreachableError:
            # Nothing was sent, so the write must not show up: forgetting it here makes that a finding.
            op.kind, op.value = "get", ABSENT
            await asyncio.sleep(0.01)
            return
        op.ended = time.monotonic()
        op.known, op.done, op.revision = True, told.done, told.revision
        self._note(op, told)

    def _note(self, op: Op, told: Tell) -> None:
        if op.kind == "list":
            op.contents = {key: value for key, value, _ in told.entries}
            return
        found = told.entries[0] if told.entries else (op.key, ABSENT, 0)
        if op.kind == "get" or not told.done:
            op.found = found[1]
            self._seen[op.key] = found[1:]
        elif op.kind == "delete":
            self._seen[op.key] = (ABSENT, 0)
        else:
            self._seen[op.key] = (op.value, told.revision)
