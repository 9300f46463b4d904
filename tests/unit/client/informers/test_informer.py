"""An informer shows what the server has, whatever happens on the way."""

from __future__ import annotations

import asyncio

import pytest

from dray.api.resource import ResourceClaim
from dray.client.errors import BrokenWatchError, ResourceExpiredError, ServerUnreachableError
from dray.client.informers.indexer import IndexedObject, Indexer
from dray.client.informers.informer import Informer
from dray.client.object_refs import ObjectKey
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
from tests.unit.client.informing import Diary, Server, running


async def test_it_lists_and_then_watches_from_there():
    server = Server(
        [listing(7, claim("a", 3), claim("b", 5))],
        [
            FakeResponse(
                [
                    line("ADDED", claim("c", 8)),
                    line("MODIFIED", claim("a", 9)),
                    line("DELETED", claim("b", 10)),
                ]
            )
        ],
    )
    async with running(server) as (informer, told, _):
        assert told == ["+a@3", "+b@5", "+c@8", "a@3>a@9", "-b@5"]
        assert sorted(c.metadata.name for c in informer.list_all()) == ["a", "c"]
        assert isinstance(informer.get("a", "default"), ResourceClaim)
        assert informer.get("b", "default") is None
        assert server.watched_from[0] == "7"


async def test_a_broken_watch_is_resumed_where_it_was():
    server = Server(
        [listing(7, claim("a", 3))],
        [
            FakeResponse(
                [line("ADDED", claim("b", 8)), line("ADDED", claim("c", 9)), ServerUnreachableError("reset")]
            ),
            FakeResponse([line("ADDED", claim("c", 9)), line("ADDED", claim("d", 10))]),
        ],
    )
    async with running(server) as (informer, told, troubles):
        assert told == ["+a@3", "+b@8", "+c@9", "+d@10"]
        assert server.watched_from[:2] == ["7", "8"]
        assert [type(trouble) for trouble in troubles] == [ServerUnreachableError]
        assert informer.stats.duplicates == 1
        assert informer.stats.lists == 1


async def test_objects_that_changed_in_one_write_survive_a_cut_between_them():
    server = Server(
        [listing(7)],
        [
            FakeResponse([line("ADDED", claim("a", 8)), ServerUnreachableError("reset")]),
            FakeResponse([line("ADDED", claim("a", 8)), line("ADDED", claim("b", 8)), bookmark(8)]),
        ],
    )
    async with running(server) as (_informer, told, _):
        assert told == ["+a@8", "+b@8"]
        assert server.watched_from[:3] == ["7", "7", "8"]


async def test_an_event_cut_in_the_middle_is_no_event():
    whole = line("ADDED", claim("b", 9))
    server = Server(
        [listing(7)],
        [FakeResponse([line("ADDED", claim("a", 8)) + whole[:40]]), FakeResponse([whole[:50], whole[50:]])],
    )
    async with running(server) as (_, told, _troubles):
        assert told == ["+a@8", "+b@9"]


@pytest.mark.parametrize("way", ["answer", "event"])
async def test_when_the_version_expired_everything_is_listed_again_and_differences_are_delivered(way):
    gone = failed(410, "Expired", "too old resource version: 7 (9)")
    expired = gone if way == "answer" else FakeResponse([line("ERROR", gone.body)])
    server = Server(
        [
            listing(7, claim("a", 3), claim("b", 4), claim("c", 5), claim("d", 6, "old")),
            listing(20, claim("a", 3), claim("b", 15), claim("d", 16, "new"), claim("e", 17)),
        ],
        [expired, FakeResponse([line("ADDED", claim("f", 21))])],
    )
    async with running(server) as (informer, told, troubles):
        assert told[4:] == ["-c@5", "b@4>b@15", "-d@6", "+d@16", "+e@17", "+f@21"]
        assert server.watched_from[:2] == ["7", "20"]
        assert [type(trouble) for trouble in troubles] == [ResourceExpiredError]
        assert informer.stats.relists == 1


async def test_events_before_an_error_in_the_same_chunk_are_not_lost():
    error = line("ERROR", failed(410, "Expired", "gone").body)
    server = Server(
        [listing(7), listing(9, claim("a", 8))],
        [FakeResponse([line("ADDED", claim("a", 8)) + error])],
    )
    async with running(server) as (_, told, _troubles):
        assert told == ["+a@8"]


async def test_an_event_that_comes_twice_is_delivered_once():
    server = Server(
        [listing(7)],
        [
            FakeResponse(
                [
                    line("ADDED", claim("a", 8)),
                    line("ADDED", claim("a", 8)),
                    line("MODIFIED", claim("a", 9)),
                    line("MODIFIED", claim("a", 8)),
                    line("DELETED", claim("a", 10)),
                    line("DELETED", claim("a", 10)),
                ]
            )
        ],
    )
    async with running(server) as (informer, told, _):
        assert told == ["+a@8", "a@8>a@9", "-a@9"]
        assert informer.stats.duplicates == 3
        assert informer.stats.relists == 0


async def test_a_deleted_object_does_not_come_back_by_an_old_event():
    server = Server(
        [listing(7, claim("a", 5)), listing(9)],
        [
            FakeResponse(
                [
                    line("DELETED", claim("a", 8)),
                    line("ADDED", claim("b", 9)),
                    line("MODIFIED", claim("a", 6)),
                ]
            )
        ],
    )
    async with running(server) as (informer, told, troubles):
        assert told == ["+a@5", "-a@5", "+b@9", "-b@9"]  # the second list is the truth, and it is empty
        assert informer.list_all() == []
        assert [type(trouble) for trouble in troubles] == [BrokenWatchError]


async def test_a_deletion_may_carry_the_last_version_of_its_object():
    server = Server([listing(7, claim("a", 5))], [FakeResponse([line("DELETED", claim("a", 5))])])
    async with running(server) as (_informer, told, _):
        assert told == ["+a@5", "-a@5"]
        assert server.watched_from[1] == "7"


async def test_an_old_deletion_does_not_remove_the_object_that_took_the_name():
    server = Server(
        [listing(7, claim("a", 5, "one"))],
        [
            FakeResponse([line("DELETED", claim("a", 8, "one")), line("ADDED", claim("a", 9, "two"))]),
            FakeResponse([line("DELETED", claim("a", 8, "one")), line("ADDED", claim("a", 9, "two"))]),
        ],
    )
    async with running(server) as (_informer, told, _):
        assert told == ["+a@5", "-a@5", "+a@9"]


async def test_a_name_given_again_is_another_object():
    server = Server(
        [listing(7, claim("a", 5, "one"))], [FakeResponse([line("MODIFIED", claim("a", 9, "two"))])]
    )
    async with running(server) as (_, told, _troubles):
        assert told == ["+a@5", "-a@5", "+a@9"]


@pytest.mark.parametrize(
    "nonsense",
    [
        b"not json\n",
        b'{"type":"ADDED"}\n',
        b'{"type":"GUESSED","object":{}}\n',
        b"[]\n",
        line("ADDED", {}),
        line("BOOKMARK", {}),
        line("ADDED", claim("x", 8) | {"kind": "Pod", "apiVersion": "v1"}),
        line("ADDED", claim("x", 8) | {"spec": 7}),
    ],
)
async def test_what_is_no_event_leads_to_a_new_list(nonsense):
    server = Server([listing(7), listing(9, claim("b", 9))], [FakeResponse([nonsense])])
    async with running(server) as (_informer, told, troubles):
        assert told == ["+b@9"]
        assert [type(trouble) for trouble in troubles] == [BrokenWatchError]


async def test_versions_that_are_no_numbers_are_not_guessed_at():
    strange = claim("a", 8)
    strange["metadata"]["resourceVersion"] = "eight"
    server = Server([listing(7), listing(9)], [FakeResponse([line("ADDED", strange)])])
    async with running(server) as (_informer, told, troubles):
        assert told == []
        assert [type(trouble) for trouble in troubles] == [BrokenWatchError]


async def test_h03_a_watch_survives_a_server_that_comes_back_with_another_version():
    old, new = CLAIMS.replace("v1", "v1beta1"), CLAIMS
    api, quiet = serves(FakeApi(), "v1beta1"), asyncio.Event()
    former = [claim("a", 3) | {"apiVersion": "resource.k8s.io/v1beta1"}]
    api.answer("GET", old, listing(7, *former), failed(404, "NotFound", "no such resource"))

    def current(asked):
        if not asked.query.get("watch"):
            return listing(9, claim("a", 3), claim("b", 8))
        quiet.set()
        return FakeResponse(forever())

    api.answer("GET", new, current)
    informer = Informer(client_of(api), ResourceClaim)
    diary = Diary(informer)
    run = asyncio.create_task(informer.run())
    await informer.wait_for_sync()
    serves(api, "v1")
    async with asyncio.timeout(5):
        await quiet.wait()
    assert diary.told == ["+a@3", "+b@8"]
    run.cancel()


async def test_an_index_may_give_a_value_twice():
    shelf: Indexer[dict] = Indexer()
    shelf.add_index("colour", lambda obj: obj["colours"])
    key = ObjectKey("", "a")
    shelf.put(key, IndexedObject({"colours": ["red", "red"]}, 1, "u"))
    assert shelf.get_by_index("colour", "red") == [{"colours": ["red", "red"]}]
    shelf.remove(key)
    assert shelf.get_by_index("colour", "red") == []
