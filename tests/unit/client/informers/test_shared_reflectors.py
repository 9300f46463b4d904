"""Informers of one process that share a reflector: one list, one watch, the same objects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.informers.informer import Informer, InformerOptions, strip_managed_fields
from dray.client.informers.shared_reflectors import SharedReflectors, SharingClient
from tests.unit.client.fakeapi import (
    CLAIMS,
    FakeApi,
    FakeResponse,
    bookmark,
    claim,
    client_of,
    failed,
    line,
    listing,
    serves,
)
from tests.unit.client.informing import Diary


class Feed(FakeApi):
    """A server with one list, whose watches send what the test puts into the feed."""

    def __init__(self) -> None:
        super().__init__()
        serves(self, "v1")
        self.lists = [listing(5, claim("a", 5))]
        self.lines: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.watches = 0

    def _next(self, asked):
        if asked.path != CLAIMS:
            return super()._next(asked)
        if not asked.query.get("watch"):
            return self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        self.watches += 1
        return FakeResponse(self._stream())

    async def _stream(self):
        while (part := await self.lines.get()) is not None:
            yield part

    def count_lists(self) -> int:
        return sum("watch" not in asked.query for asked in self.requests("GET", CLAIMS))


class Place:
    """A process with shared reflectors, and the informers that were started in it."""

    def __init__(self) -> None:
        self.api = Feed()
        self.client = client_of(self.api, max_attempts=1)
        self.reflectors = SharedReflectors(self.client, {ResourceClaim: strip_managed_fields})
        self.sharing = SharingClient(self.client._rest_client.transport, self.reflectors)
        self.failures: list[Exception] = []
        self.tasks: list[asyncio.Task[None]] = []

    def build(self, client: Client | None = None, **query: str) -> Informer[ResourceClaim]:
        options = InformerOptions(may_share=True, on_failure=self.failures.append)
        return Informer(client or self.sharing, ResourceClaim, options=options, **query)

    async def start(self, informer: Informer[ResourceClaim]) -> asyncio.Task[None]:
        task = asyncio.create_task(informer.run())
        self.tasks.append(task)
        await informer.wait_for_sync()
        return task

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0)


def in_place(scenario: Callable[[Place], Awaitable[Any]]) -> None:
    async def run_scenario() -> None:
        place = Place()
        try:
            await scenario(place)
        finally:
            await place.close()

    asyncio.run(run_scenario())


def test_two_informers_have_one_list_one_watch_and_the_same_objects():
    async def scenario(place: Place) -> None:
        first, second = place.build(), place.build()
        diaries = Diary(first), Diary(second)
        await place.start(first)
        await place.start(second)
        fields = [{"manager": "m", "operation": "Update"}]
        changed = claim("a", 7)
        changed["metadata"]["managedFields"] = fields
        place.api.lines.put_nowait(line("MODIFIED", changed) + line("ADDED", claim("b", 8)))
        place.api.lines.put_nowait(line("DELETED", claim("b", 9)))
        expected = ["+a@5", "a@5>a@7", "+b@8", "-b@8"]
        await until(lambda: all(diary.told == expected for diary in diaries))
        kept = first.get("a", "default")
        assert kept is second.get("a", "default")
        assert kept is not None
        assert kept.metadata.managed_fields == ()
        assert (place.api.count_lists(), place.api.watches) == (1, 1)
        assert first.stats is second.stats

    in_place(scenario)


def test_a_late_informer_gets_a_snapshot_and_then_the_changes():
    async def scenario(place: Place) -> None:
        first = place.build()
        await place.start(first)
        place.api.lines.put_nowait(line("MODIFIED", claim("a", 7)) + line("ADDED", claim("b", 8)))
        await until(lambda: len(first) == 2)
        late = place.build()
        assert late.resource_version == ""
        diary, replacing = Diary(late), []
        late.listen(added=lambda _new: replacing.append(late.is_replacing))
        await place.start(late)
        assert diary.told == ["+a@7", "+b@8"]
        assert late.resource_version == first.resource_version == "7"
        place.api.lines.put_nowait(line("ADDED", claim("c", 9)))
        await until(lambda: len(late) == 3)
        assert diary.told == ["+a@7", "+b@8", "+c@9"]
        assert replacing == [True, True, False]
        assert (place.api.count_lists(), place.api.watches) == (1, 1)

    in_place(scenario)


def test_an_error_of_one_listener_ends_its_informer_and_no_other():
    async def scenario(place: Place) -> None:
        broken, sound = place.build(), place.build()
        diary = Diary(sound)

        def fail(_old: ResourceClaim, _new: ResourceClaim) -> None:
            raise ValueError("a bug of the listener")

        broken.listen(updated=fail)
        task = await place.start(broken)
        await place.start(sound)
        place.api.lines.put_nowait(line("MODIFIED", claim("a", 7)))
        with pytest.raises(ValueError, match="a bug of the listener"):
            await task
        place.api.lines.put_nowait(line("MODIFIED", claim("a", 8)))
        await until(lambda: diary.told == ["+a@5", "a@5>a@7", "a@7>a@8"])
        again = place.build()  # the component starts anew
        await place.start(again)
        assert again.get("a", "default") is sound.get("a", "default")
        assert (place.api.count_lists(), place.api.watches) == (1, 1)

    in_place(scenario)


def test_the_reflector_ends_with_its_last_informer_and_begins_anew():
    async def scenario(place: Place) -> None:
        first, second = place.build(), place.build()
        tasks = [await place.start(first), await place.start(second)]
        tasks[0].cancel()
        await asyncio.gather(tasks[0], return_exceptions=True)
        assert place.api.left == 0
        tasks[1].cancel()
        await asyncio.gather(tasks[1], return_exceptions=True)
        await until(lambda: place.api.left == 1)  # the watch is closed
        place.api.lists = [listing(20, claim("z", 20))]
        third = place.build()
        await place.start(third)
        assert [each.metadata.name for each in third.list_all()] == ["z"]
        assert place.api.count_lists() == 2

    in_place(scenario)


def test_when_the_history_is_gone_all_get_the_differences_to_a_new_list():
    async def scenario(place: Place) -> None:
        place.api.lists.append(listing(30, claim("c", 30)))
        informers = place.build(), place.build()
        diaries = [Diary(each) for each in informers]
        for each in informers:
            await place.start(each)
        status = failed(410, "Expired", "too old").body
        place.api.lines.put_nowait(line("ERROR", status))
        await until(lambda: all(diary.told == ["+a@5", "-a@5", "+c@30"] for diary in diaries))
        assert [str(each) for each in place.failures] != []
        assert len(place.failures) == 2  # each is told of the one failure
        place.api.lines.put_nowait(bookmark(33))
        await until(lambda: all(each.resource_version == "33" for each in informers))

    in_place(scenario)


def test_only_all_objects_of_a_shared_kind_are_shared():
    async def scenario(place: Place) -> None:
        assert place.build()._reflector is None
        assert place.build(namespace="default")._reflector is not None
        assert place.build(label_selector="a=b")._reflector is not None
        assert place.build(field_selector="metadata.name=a")._reflector is not None
        assert place.build(place.client)._reflector is not None
        assert Informer(place.sharing, ResourceClaim)._reflector is not None
        guarded = place.sharing.guard_writes(lambda: True)
        assert place.build(guarded)._reflector is None

    in_place(scenario)


def test_a_failure_of_the_reflector_itself_reaches_every_informer():
    async def scenario(place: Place) -> None:
        def fail(_claim: ResourceClaim) -> ResourceClaim:
            raise RuntimeError("a bug of the transform")

        place.sharing.reflectors = SharedReflectors(place.client, {ResourceClaim: fail})
        tasks = [asyncio.create_task(place.build().run()) for _ in range(2)]
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert str(ended) == "a bug of the transform"

    in_place(scenario)
