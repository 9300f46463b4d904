"""A scheduler without manners: `python -m tests.faults.ledger.writer CONFIG JOURNAL SEED POOLS HELD TURN`.

It knows which devices there are and what it did itself, and believes everything else to be free. It takes
claims in an order of its own (TURN is `1/4` for the second of four: it begins with every fourth claim, and
some of the others), writes an allocation, holds it for a while, and deletes the claim; some it
prepares on a node first, and some of those it deletes while prepared. It may be killed at any moment; whoever
comes after it finds in the journal what it had, and puts it back. Prints its figures when no claim is left.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter, deque
from pathlib import Path
from typing import Any

from dray.api.transactions import FAILED_REQUEST_REASON, TRANSACTIONS_PATH
from tests.faults.ledger import contested_devices
from tests.faults.ledger.api import CLAIMS, MERGE, PREPARATIONS, Api
from tests.faults.ledger.contested_devices import Device, allocation, devices_of, pool_name, sort_of

HANDS = 4
"""How many claims a writer works on at a time."""
NODES = ("n1", "n2")
PREPARED = 0.2
TOGETHER = 0.3
"""How many claims are allocated in a transaction."""
FOREIGN = 0.1
"""How many of the claims that others begin with are taken too."""


class Writer:
    """One of several that know nothing of each other."""

    def __init__(self, api: Api, journal: Path, seed: int, pools: int, held: int) -> None:
        self._api = api
        self._journal = journal
        self._rng = random.Random(seed)
        self._pools = pools
        self._most = held
        self._held: deque[tuple[str, Device, str]] = deque()
        self._busy: set[Device] = set()
        self._todo: deque[dict[str, Any]] = deque()
        self._idle = 0
        self.turn = (0, 1)
        self.figures: Counter[str] = Counter()

    async def run(self) -> None:
        await self._inherit()
        while await self._look():
            async with asyncio.TaskGroup() as hands:
                for _ in range(HANDS):
                    hands.create_task(self._work())
            self._busy.clear()
            while self._held:
                await self._let_go(*self._held.popleft())

    async def _inherit(self) -> None:
        """Put back what somebody who was killed had."""
        if not self._journal.exists():
            return
        for line in self._journal.read_text().splitlines():
            what, _, name = line.partition(" ")
            path = CLAIMS if what == "claim" else PREPARATIONS
            await self._api.send("DELETE", f"{path}/{name}")
        self._journal.unlink()

    async def _look(self) -> bool:
        claims = await self._api.everything(CLAIMS)
        waiting = [claim for claim in claims if not (claim.get("status") or {}).get("allocation")]
        self._rng.shuffle(waiting)
        mine = [claim for claim in waiting if self._is_mine(claim) or self._rng.random() < FOREIGN]
        self._todo = deque(mine or waiting)
        if claims and not waiting:
            await asyncio.sleep(0.1)  # others still hold some, or were killed with them
            self._idle += 1
        return bool(claims) and self._idle < 3

    def _is_mine(self, claim: dict[str, Any]) -> bool:
        number, writers = self.turn
        return int(claim["metadata"]["name"][1:]) // 6 % writers == number

    async def _work(self) -> None:
        while self._todo:
            await self._place(self._todo.popleft())
            while len(self._held) > self._most:
                await self._let_go(*self._held.popleft())

    async def _place(self, claim: dict[str, Any]) -> None:
        name, version = claim["metadata"]["name"], claim["metadata"]["resourceVersion"]
        sort = sort_of(int(name[1:]))
        for _ in range(20):
            device = (
                pool_name(self._rng.randrange(self._pools)),
                self._rng.choice(devices_of(sort)),
            )
            if device in self._busy:
                continue
            self._note(f"claim {name}")
            patch = allocation(sort, device, self._rng) | {"metadata": {"resourceVersion": version}}
            if self._rng.random() < TOGETHER:
                code, answer = await self._allocate_together(name, claim["metadata"]["uid"], patch)
            else:
                code, answer = await self._api.send("PATCH", f"{CLAIMS}/{name}/status", patch, MERGE)
            self.figures["attempts"] += 1
            if code == 200:
                await self._took(name, device, answer["metadata"]["uid"], shared=sort == "shared")
                return
            causes = (answer.get("details") or {}).get("causes") or ()
            if not causes:
                self.figures["lost claims" if code in (404, 409) else f"code {code}"] += 1
                return
            self.figures["conflicts"] += 1

    async def _allocate_together(self, name: str, uid: str, patch: dict[str, Any]) -> tuple[int, Any]:
        """Allocate a claim and prepare it on a node for a moment, in one transaction."""
        prepared = contested_devices.preparation(f"t-{name}", self._rng.choice(NODES), name, uid)
        requests = [
            {"method": "PATCH", "path": f"{CLAIMS}/{name}/status", "contentType": MERGE, "body": patch},
            {"method": "POST", "path": PREPARATIONS, "body": prepared},
            {"method": "DELETE", "path": f"{PREPARATIONS}/t-{name}"},
        ]
        code, answer = await self._api.send("POST", TRANSACTIONS_PATH, {"spec": {"requests": requests}})
        if code == 201:
            self.figures["together"] += 1
            return 200, answer["status"]["responses"][0]["body"]
        details = answer.get("details") or {}
        causes = [each for each in details.get("causes") or () if each["reason"] != FAILED_REQUEST_REASON]
        return code, {**answer, "details": {**details, "causes": causes}}

    async def _took(self, name: str, device: Device, uid: str, *, shared: bool) -> None:
        self.figures["placed"] += 1
        if not shared:
            self._busy.add(device)
        preparation = ""
        if self._rng.random() < PREPARED:
            preparation = f"p-{name}"
            self._note(f"preparation {preparation}")
            document = contested_devices.preparation(preparation, self._rng.choice(NODES), name, uid)
            code, _ = await self._api.send("POST", PREPARATIONS, document)
            if code != 201:
                self.figures[f"unprepared {code}"] += 1
                preparation = ""
        self._held.append((name, device, preparation))

    async def _let_go(self, name: str, device: Device, preparation: str) -> None:
        first_the_node = bool(preparation) and self._rng.random() < 0.5
        if first_the_node:
            await self._api.send("DELETE", f"{PREPARATIONS}/{preparation}")
        await self._api.send("DELETE", f"{CLAIMS}/{name}")
        if preparation and not first_the_node:
            await asyncio.sleep(self._rng.random() * 0.02)
            await self._api.send("DELETE", f"{PREPARATIONS}/{preparation}")
        self._busy.discard(device)

    def _note(self, line: str) -> None:
        """Before it is done: whoever is killed in between leaves a line too many, never one too few."""
        with self._journal.open("a") as journal:
            journal.write(line + "\n")


async def main() -> None:
    kubeconfig, journal, seed, pools, held, turn = sys.argv[1:]
    api = Api(kubeconfig)
    try:
        writer = Writer(api, Path(journal), int(seed), int(pools), int(held))
        number, _, writers = turn.partition("/")
        writer.turn = (int(number), int(writers))
        await writer.run()
    finally:
        await api.close()
    print(" ".join(f"{name.replace(' ', '-')}={number}" for name, number in sorted(writer.figures.items())))


if __name__ == "__main__":
    asyncio.run(main())
