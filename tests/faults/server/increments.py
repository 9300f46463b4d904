"""R-07: many writers count one object up by reading, adding and writing; no acknowledged addition is lost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tests.contract.api import Api, path

PLACE = path("configmaps", "counter")


@dataclass
class Sum:
    """How the writers fared."""

    writers: int
    acknowledged: int = 0
    conflicts: int = 0
    final: int = 0
    strange: int = 0

    @property
    def lost(self) -> int:
        return self.acknowledged - self.final

    def __str__(self) -> str:
        return (
            f"{self.writers} writers: {self.acknowledged} acknowledged, {self.conflicts} conflicts, "
            f"final value {self.final}, {self.lost} lost, {self.strange} other answers"
        )


async def campaign(api: Api, writers: int, each: int, *, careful: bool = True) -> Sum:
    """Let writers add one, so many times each; careless ones do not say what they read."""
    counter = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "counter"}, "data": {"n": "0"}}
    await api.create(counter)
    found = Sum(writers)

    async def writer() -> None:
        done = 0
        while done < each:
            document = await api.get(PLACE)
            document["data"]["n"] = str(int(document["data"]["n"]) + 1)
            if not careful:
                del document["metadata"]["resourceVersion"]
            await asyncio.sleep(0)
            said = await api.ask("PUT", PLACE, document)
            if said.code == 200:
                done += 1
                found.acknowledged += 1
            elif said.code == 409:
                found.conflicts += 1
            else:
                found.strange += 1
                return

    await asyncio.gather(*(writer() for _ in range(writers)))
    found.final = int((await api.get(PLACE))["data"]["n"])
    return found
