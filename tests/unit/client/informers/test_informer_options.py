"""Informers: resource versions, listeners, indexes and options."""

from __future__ import annotations

import asyncio

import pytest

from dray.api.resource import ResourceClaim
from dray.client.errors import ServerUnreachableError
from dray.client.informers.informer import Informer, InformerOptions
from dray.client.object_refs import get_kind
from tests.unit.client.fakeapi import (
    FakeApi,
    FakeResponse,
    bookmark,
    claim,
    client_of,
    failed,
    forever,
    line,
    listing,
)
from tests.unit.client.informing import Diary, Server, running


async def test_bookmarks_move_the_place_to_resume_from():
    server = Server(
        [listing(7)],
        [FakeResponse([line("ADDED", claim("a", 8)), bookmark(30)]), FakeResponse([bookmark(40)])],
    )
    async with running(server) as (informer, _told, _):
        assert server.watched_from[:3] == ["7", "30", "40"]
        assert informer.resource_version == "40"
        assert informer.stats.bookmarks == 2


async def test_failures_of_the_first_list_are_waited_out():
    server = Server(
        [
            failed(403, "Forbidden", "not yet"),
            failed(503, "ServiceUnavailable", "soon"),
            listing(7, claim("a", 3)),
        ],
        [],
    )
    async with running(server) as (_informer, told, troubles):
        assert told == ["+a@3"]
        assert len(troubles) == 2


async def test_a_watch_that_ends_at_once_is_not_asked_for_in_a_rush():
    server = Server([listing(7)], [FakeResponse([]), FakeResponse([]), FakeResponse([])])
    async with running(server) as (informer, _, troubles):
        slept = informer._reflector._time_source.sleep.__self__.slept
        assert troubles == []
        assert len(slept) == 3
        assert slept == sorted(slept)
        assert min(slept) > 0


async def test_a_watch_that_only_repeats_itself_is_not_asked_for_in_a_rush():
    again = [FakeResponse([line("ADDED", claim("a", 8))]) for _ in range(4)]
    server = Server([listing(7)], again)
    async with running(server) as (informer, told, _):
        slept = informer._reflector._time_source.sleep.__self__.slept
        assert told == ["+a@8"]
        assert len(slept) == 3
        assert slept == sorted(slept)


async def test_lists_are_not_asked_for_in_a_rush_when_the_past_is_always_gone():
    gone = [failed(410, "Expired", "gone") for _ in range(4)]
    server = Server([listing(7) for _ in range(5)], gone)
    async with running(server) as (informer, _told, _):
        slept = informer._reflector._time_source.sleep.__self__.slept
        assert informer.stats.lists == 5
        assert slept == pytest.approx([0.6, 1.2, 2.4, 4.8])


async def test_a_mistake_of_a_listener_ends_the_informer_loudly():
    server = Server([listing(7)], [FakeResponse([line("ADDED", claim("a", 8))])])
    informer = Informer(client_of(server), ResourceClaim)

    def wrong(_obj) -> None:
        raise ServerUnreachableError("a failure of the listener is not one of the server")

    informer.listen(added=wrong)
    with pytest.raises(ServerUnreachableError):
        await informer.run()
    with pytest.raises(RuntimeError, match="the informer of resourceclaims has ended"):
        await informer.wait_for_sync()


async def test_a_late_listener_gets_all_existing_objects():
    server = Server([listing(7, claim("a", 3))], [FakeResponse([line("ADDED", claim("b", 8))])])
    async with running(server) as (informer, _, _troubles):
        late = Diary(informer)
        assert late.told == ["+a@3", "+b@8"]


async def test_a_removed_listener_gets_nothing_more():
    server = Server([listing(7, claim("a", 3))], [])
    informer = Informer(client_of(server), ResourceClaim)
    heard: list[str] = []
    stop = informer.listen(added=lambda new: heard.append(new.metadata.name))
    stop()
    task = asyncio.create_task(informer.run())
    await informer.wait_for_sync()
    assert heard == []
    task.cancel()


async def test_indexes_follow_every_change():
    server = Server(
        [listing(7, claim("a", 3, team="red"), claim("b", 4, team="red"))],
        [
            FakeResponse(
                [
                    line("MODIFIED", claim("a", 8, team="blue")),
                    line("DELETED", claim("b", 9, team="red")),
                    line("ADDED", claim("c", 10, team="blue")),
                ]
            )
        ],
    )
    informer = Informer(client_of(server), ResourceClaim)
    informer.add_index("team", lambda c: [c.metadata.labels.get("team", "")])
    task = asyncio.create_task(informer.run())
    await informer.wait_for_sync()
    assert {c.metadata.name for c in informer.get_by_index("team", "red")} == {"a", "b"}
    await server.quiet.wait()
    assert informer.get_by_index("team", "red") == []
    assert {c.metadata.name for c in informer.get_by_index("team", "blue")} == {"a", "c"}
    informer.add_index("name", lambda c: [c.metadata.name])
    assert [c.metadata.name for c in informer.get_by_index("name", "c")] == ["c"]
    with pytest.raises(ValueError, match="already"):
        informer.add_index("name", lambda c: [])
    with pytest.raises(KeyError, match="`team`, `name`"):
        informer.get_by_index("colour", "red")
    task.cancel()


async def test_initial_events_take_the_place_of_the_list():
    server = Server(
        [],
        [
            FakeResponse(
                [
                    line("ADDED", claim("a", 3)),
                    line("ADDED", claim("b", 4)),
                    bookmark(6),
                    ServerUnreachableError("reset"),
                ]
            ),
            FakeResponse(
                [line("ADDED", claim("a", 3)), bookmark(7, initial_end=True), line("ADDED", claim("c", 8))]
            ),
        ],
    )
    async with running(server, send_initial_events=True) as (informer, told, _):
        assert told == ["+a@3", "+c@8"]  # what came before the end of a broken beginning does not count
        assert server.asked[1].query["sendInitialEvents"] == "true"
        assert server.asked[1].query["resourceVersionMatch"] == "NotOlderThan"
        assert informer.stats.lists == 0
        assert server.watched_from[:3] == ["", "", "7"]


async def test_servers_without_initial_events_are_listed():
    server = Server([listing(7, claim("a", 3))], [failed(422, "Invalid", "sendInitialEvents is forbidden")])
    async with running(server, send_initial_events=True) as (_informer, told, troubles):
        assert told == ["+a@3"]
        assert troubles == []


async def test_what_is_kept_can_be_less_than_what_comes():
    bulky = claim("a", 3) | {"kind": "Pod", "apiVersion": "v1", "spec": {"nodeName": "n1"}}
    api = FakeApi()
    answers = [
        FakeResponse({"metadata": {"resourceVersion": "7"}, "items": [bulky]}),
        FakeResponse(forever()),
    ]
    api.answer("GET", "/api/v1/pods", *answers)
    informer = Informer(
        client_of(api),
        get_kind("Pod"),
        options=InformerOptions(transform=lambda pod: pod["spec"]["nodeName"]),
    )
    task = asyncio.create_task(informer.run())
    await informer.wait_for_sync()
    assert informer.get("a", "default") == "n1"
    assert informer.list_all() == ["n1"]
    task.cancel()


async def test_every_watch_has_an_end_and_silence_beyond_it_is_noticed():
    server = Server([listing(7)], [])
    async with running(server):
        seconds = int(server.asked[-1].query["timeoutSeconds"])
        assert 300 <= seconds <= 600


async def test_a_stream_that_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr("dray.client.informers.reflector.MIN_WATCH_SECONDS", 0)
    monkeypatch.setattr("dray.client.informers.watch_stream.WATCH_GRACE_SECONDS", 0.01)
    server = Server([listing(7)], [FakeResponse(forever()), FakeResponse([line("ADDED", claim("a", 8))])])
    async with running(server) as (_, told, troubles):
        assert told == ["+a@8"]
        assert isinstance(troubles[0], ServerUnreachableError)
        assert "said nothing" in str(troubles[0])
        assert server.left >= 1
