"""An informer on a scripted server, and the calls of its listeners."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from dray.api.resource import ResourceClaim
from dray.client.informers.informer import Informer, InformerOptions
from tests.unit.client.fakeapi import CLAIMS, FakeApi, FakeResponse, client_of, failed, forever, serves


class Diary:
    """What listeners were told, in order."""

    def __init__(self, informer: Informer) -> None:
        self.told: list[str] = []
        informer.listen(
            added=lambda new: self.told.append(f"+{self._named(new)}"),
            updated=lambda old, new: self.told.append(f"{self._named(old)}>{self._named(new)}"),
            deleted=lambda old: self.told.append(f"-{self._named(old)}"),
        )

    @staticmethod
    def _named(obj) -> str:
        return f"{obj.metadata.name}@{obj.metadata.resource_version}"


class Server(FakeApi):
    """Lists and watches of claims, as scripted; both share a path and differ in the query."""

    def __init__(self, lists, watches) -> None:
        super().__init__()
        serves(self, "v1")
        self.lists, self.watches = list(lists), list(watches)
        self.quiet = asyncio.Event()

    def _next(self, asked):
        if asked.path != CLAIMS:
            return super()._next(asked)
        script = self.watches if asked.query.get("watch") else self.lists
        if script:
            return script.pop(0)
        self.quiet.set()
        return (
            FakeResponse(forever())
            if asked.query.get("watch")
            else failed(503, "ServiceUnavailable", "no more")
        )

    @property
    def watched_from(self) -> list[str]:
        return [a.query.get("resourceVersion", "") for a in self.asked if a.query.get("watch")]


@asynccontextmanager
async def running(server, **ways):
    """An informer that has played the whole script."""
    troubles: list[Exception] = []
    client = client_of(server, max_attempts=1)
    informer = Informer(client, ResourceClaim, options=InformerOptions(on_failure=troubles.append, **ways))
    diary = Diary(informer)
    task = asyncio.create_task(informer.run())
    await informer.wait_for_sync()
    waiting = asyncio.create_task(server.quiet.wait())
    await asyncio.wait((waiting, task), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await asyncio.sleep(0.01)
    try:
        yield informer, diary.told, troubles
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
