"""An informer shows the state of the server, however often the connection breaks.

The server has a history of writes, each of one or more objects, and a plan of faults for each watch: it is
cut, it starts with events that were already sent, it is refused because the history is gone, or it ends. When
the plan is done the informer must show the last state; the events of its listeners must add up to it, with
the versions of every object in order and no event twice; and unless the history was gone, no event may be
missing. Informers that share a reflector see the same, also one that begins later: everything as it is then,
and from there every change.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from dray.api.resource import ResourceClaim
from dray.client.informers.informer import Informer, InformerOptions, strip_managed_fields
from dray.client.informers.shared_reflectors import SharedReflectors, SharingClient
from tests.effort import effort
from tests.unit.client.fakeapi import (
    CLAIMS,
    FakeApi,
    FakeResponse,
    bookmark,
    claim,
    client_of,
    failed,
    forever,
    line,
    listing,
    serves,
)

NAMES = ("a", "b", "c")
WRITES = st.lists(st.dictionaries(st.sampled_from(NAMES), st.booleans(), min_size=1, max_size=3), max_size=12)


class Fault(NamedTuple):
    """What goes wrong with one watch, and how many writes happen before it."""

    writes: int
    cut: int | None = None
    """After how many lines the stream breaks."""
    torn: bool = False
    """Whether half a line follows."""
    again: int = 0
    gone: bool = False
    bookmarked: bool = False


LAST = Fault(1000, bookmarked=True)
"""The last watch: everything happens, and nothing goes wrong."""

FAULTS = st.lists(
    st.builds(
        Fault,
        writes=st.integers(0, 4),
        cut=st.none() | st.integers(0, 5),
        torn=st.booleans(),
        again=st.integers(0, 3),
        gone=st.booleans(),
        bookmarked=st.booleans(),
    ),
    max_size=8,
)


class Event(NamedTuple):
    """One object changed at one revision."""

    revision: int
    what: str
    object: dict[str, Any]


class History(FakeApi):
    """A server whose writes happen as it is asked."""

    def __init__(self, writes: list[dict[str, bool]], faults: list[Fault]) -> None:
        super().__init__()
        serves(self, "v1")
        self.coming, self.faults = list(writes), list(faults)
        self.revision, self.created = 100, 0
        self.state: dict[str, dict[str, Any]] = {}
        self.events: list[Event] = []
        self.settled = asyncio.Event()
        self.forgot = False

    def _next(self, asked):
        if asked.path != CLAIMS:
            return super()._next(asked)
        if not asked.query.get("watch"):
            return listing(self.revision, *self.state.values())
        fault = self.faults.pop(0) if self.faults else LAST
        for _ in range(min(fault.writes, len(self.coming))):
            self._write(self.coming.pop(0))
        if fault.gone:
            self.forgot = True
            return failed(410, "Expired", "gone")
        return FakeResponse(self._stream(int(asked.query["resourceVersion"]), fault))

    async def _stream(self, after: int, fault: Fault):
        earlier = [event for event in self.events if event.revision <= after]
        later = [event for event in self.events if event.revision > after]
        known = {event.object["metadata"]["name"] for event in later}
        # What is sent again concerns objects that are still there: no server sends the dead.
        again = [
            event
            for event in earlier[len(earlier) - fault.again :]
            if event.object["metadata"]["name"] in self.state
            and event.object["metadata"]["name"] not in known
        ]
        lines = [line(event.what, event.object) for event in again + later]
        if fault.bookmarked:
            lines.append(bookmark(self.revision))
        if fault.cut is not None:
            rest = b"".join(lines[fault.cut :])
            yield b"".join(lines[: fault.cut]) + (rest[: len(rest) // 2] if fault.torn else b"")
            return
        text = b"".join(lines)
        yield text
        if fault is LAST:
            self.settled.set()
            async for part in forever():
                yield part

    def _write(self, write: dict[str, bool]) -> None:
        self.revision += 1
        for name, there in write.items():
            known = self.state.get(name)
            if there:
                self.created += known is None
                uid = known["metadata"]["uid"] if known else f"uid-{self.created}"
                self.state[name] = claim(name, self.revision, uid)
                self.events.append(Event(self.revision, "MODIFIED" if known else "ADDED", self.state[name]))
            elif known:
                del self.state[name]
                gone = json.loads(json.dumps(known))
                gone["metadata"]["resourceVersion"] = str(self.revision)
                self.events.append(Event(self.revision, "DELETED", gone))


class Shadow:
    """What a listener would believe, and whether what it is told makes sense."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[str, int]] = {}
        self.told = 0

    def added(self, new: ResourceClaim) -> None:
        self.told += 1
        assert new.metadata.name not in self.objects
        self._set(new)

    def updated(self, old: ResourceClaim, new: ResourceClaim) -> None:
        self.told += 1
        uid, version = self.objects[new.metadata.name]
        assert old.metadata.uid == new.metadata.uid == uid
        assert version == int(old.metadata.resource_version) < int(new.metadata.resource_version)
        self._set(new)

    def deleted(self, old: ResourceClaim) -> None:
        self.told += 1
        assert self.objects.pop(old.metadata.name)[0] == old.metadata.uid

    def _set(self, new: ResourceClaim) -> None:
        self.objects[new.metadata.name] = (new.metadata.uid, int(new.metadata.resource_version))


async def followed(server: History) -> tuple[Informer, Shadow]:
    informer, shadow = Informer(client_of(server), ResourceClaim), Shadow()
    informer.listen(shadow.added, shadow.updated, shadow.deleted)
    run = asyncio.create_task(informer.run())
    settled = asyncio.create_task(server.settled.wait())
    async with asyncio.timeout(5):
        await asyncio.wait((run, settled), return_when=asyncio.FIRST_COMPLETED)
        while settled.done() and informer.resource_version != str(server.revision):
            await asyncio.sleep(0)
    for task in (run, settled):
        task.cancel()
    ended = await asyncio.gather(run, settled, return_exceptions=True)
    assert isinstance(ended[0], asyncio.CancelledError), ended[0]
    return informer, shadow


async def followed_by_two(server: History, late: int) -> tuple[list[Informer], list[Shadow], int]:
    """Two informers of one reflector; the later one begins after some requests. How many events it missed."""
    client = client_of(server)
    sharing = SharingClient(
        client._rest_client.transport, SharedReflectors(client, {ResourceClaim: strip_managed_fields})
    )
    options = InformerOptions(may_share=True)
    informers = [Informer(sharing, ResourceClaim, options=options) for _ in range(2)]
    shadows = [Shadow() for _ in informers]
    for informer, shadow in zip(informers, shadows, strict=True):
        informer.listen(shadow.added, shadow.updated, shadow.deleted)
    tasks = [asyncio.create_task(informers[0].run())]
    async with asyncio.timeout(30):
        while len(server.asked) < late and not server.settled.is_set():
            await asyncio.sleep(0)
        tasks.append(asyncio.create_task(informers[1].run()))
        while any(informer.resource_version != str(server.revision) for informer in informers) or not (
            server.settled.is_set()
        ):
            assert not any(task.done() for task in tasks), tasks
            await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended
    return informers, shadows, sum("watch" not in asked.query for asked in server.requests("GET", CLAIMS))


@effort(1)
@given(WRITES, FAULTS, st.integers(0, 8))
@example([{"a": True}, {"a": False}, {"b": True}], [Fault(1, cut=1), Fault(1), Fault(0, again=2)], 3)
@example([{"a": True}, {"b": True}], [Fault(1, cut=1), Fault(1, gone=True)], 2)
def test_informers_that_share_a_reflector_reach_the_state_of_the_server(writes, faults, late):
    server = History(writes, faults)
    informers, shadows, lists = asyncio.run(followed_by_two(server, late))
    truth = {
        name: (obj["metadata"]["uid"], int(obj["metadata"]["resourceVersion"]))
        for name, obj in server.state.items()
    }
    for informer, shadow in zip(informers, shadows, strict=True):
        seen = {
            obj.metadata.name: (obj.metadata.uid, int(obj.metadata.resource_version))
            for obj in informer.list_all()
        }
        assert seen == truth
        assert shadow.objects == truth
    ours, theirs = (
        {key: informer.get(*key[::-1]) for key in (("default", n) for n in NAMES)} for informer in informers
    )
    assert all(ours[key] is theirs[key] for key in ours)
    if not server.forgot:
        assert shadows[0].told == len(server.events)
        assert shadows[1].told <= len(server.events)
        assert lists == 1


@effort(1.5)
@given(WRITES, FAULTS)
@example([{"a": True, "b": True}], [Fault(1, cut=1)])
@example([{"a": True}, {"b": True}], [Fault(2), Fault(0, again=2)])
def test_an_informer_reaches_the_state_of_the_server(writes, faults):
    server = History(writes, faults)
    informer, shadow = asyncio.run(followed(server))
    truth = {
        name: (obj["metadata"]["uid"], int(obj["metadata"]["resourceVersion"]))
        for name, obj in server.state.items()
    }
    seen = {
        obj.metadata.name: (obj.metadata.uid, int(obj.metadata.resource_version))
        for obj in informer.list_all()
    }
    assert seen == truth
    assert shadow.objects == truth
    if not server.forgot:
        assert shadow.told == len(server.events)
        assert informer.stats.lists == 1
