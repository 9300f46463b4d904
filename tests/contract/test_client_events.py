"""Events against a real server, over both transports; and where a server misbehaves, against a fake."""

from __future__ import annotations

import asyncio

import pytest

from dray.client.events import (
    CORE_EVENT_KIND,
    EVENTS_PER_OBJECT,
    MAX_REMEMBERED,
    NEW_EVENT_KIND,
    EventRecorder,
    InvolvedObject,
    to_involved_object,
    truncate_text,
)
from dray.client.rest_client import ClientOptions
from tests.contract.servers import reaching, way
from tests.contract.test_client_verbs import claim, pod
from tests.unit.client.fakeapi import FakeApi, FakeResponse, InstantTime, client_of, failed

__all__ = ["way"]

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
OLD_EVENTS = "/api/v1/namespaces/default/events"
PROBE = "/apis/events.k8s.io/v1"
SOMEBODY = InvolvedObject("v1", "Pod", "default", "p", "u")


def recorder(client) -> EventRecorder:
    return EventRecorder(client, "dray-scheduler", "dray-scheduler-host1")


async def test_people_can_read_what_was_recorded(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        about = await client.create(claim("a"))
        events = recorder(client)
        events.record(about, "Allocated", "device gpu-0 on node n", action="Allocate")
        await events.write_due()
        (event,) = (await client.list(NEW_EVENT_KIND, "default")).items
        assert event["regarding"] == {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "namespace": "default",
            "name": "a",
            "uid": about.metadata.uid,
        }
        assert (event["type"], event["reason"], event["action"]) == ("Normal", "Allocated", "Allocate")
        assert event["note"] == "device gpu-0 on node n"
        assert event["reportingController"] == "dray-scheduler"
        (core,) = (await client.list(CORE_EVENT_KIND, "default")).items
        assert core["message"] == "device gpu-0 on node n"
        assert core["involvedObject"]["name"] == "a"


async def test_repeated_events_are_one_event_with_a_count(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        time = InstantTime()
        client = reach.client(ClientOptions(time_source=time.time_source))
        about = await client.create(pod("p"))
        events = recorder(client)
        for _ in range(3):
            events.record(about, "FailedScheduling", "no device", warning=True)
        await events.write_due()
        for _ in range(4):
            events.record(about, "FailedScheduling", "no device", warning=True)
            await events.write_due()
        (event,) = (await client.list(NEW_EVENT_KIND, "default")).items
        assert event["series"]["count"] == 3  # the rest is told later, all at once
        time.clock.advance(11)
        await events.write_due()
        (event,) = (await client.list(NEW_EVENT_KIND, "default")).items
        assert event["series"]["count"] == 7
        assert (events.stats.created, events.stats.repeated) == (1, 1)
        events.record(about, "FailedScheduling", "other words", warning=True)
        await events.write_due()
        assert len((await client.list(NEW_EVENT_KIND, "default")).items) == 2


async def test_objects_outside_namespaces_have_their_events_in_default(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        node = await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
        events = recorder(client)
        events.record(node, "Fenced", "by the administrator")
        await events.write_due()
        (event,) = (await client.list(NEW_EVENT_KIND, "default")).items
        assert event["regarding"]["name"] == "n"


async def test_recording_runs_by_itself(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        events = recorder(client)
        run = asyncio.create_task(events.run())
        await asyncio.sleep(0)
        events.record(SOMEBODY, "Woken", "something happened")
        async with asyncio.timeout(10):
            while not (await client.list(NEW_EVENT_KIND, "default")).items:
                await asyncio.sleep(0.01)
        run.cancel()


def fake(*answers) -> FakeApi:
    api = FakeApi()
    api.answer("GET", PROBE, FakeResponse({"resources": []}))
    api.answer("POST", EVENTS, *answers)
    return api


async def test_servers_without_the_new_events_get_the_old():
    api = FakeApi()
    api.answer("POST", OLD_EVENTS, lambda asked: FakeResponse(asked.body, 201))
    time = InstantTime()
    events = recorder(client_of(api, time_source=time.time_source))
    events.record(SOMEBODY, "Reason", "note")
    await events.write_due()
    event = api.asked[-1].document
    assert (event["kind"], event["apiVersion"]) == ("Event", "v1")
    assert event["involvedObject"] == SOMEBODY.to_reference()
    assert (event["message"], event["count"]) == ("note", 1)
    assert event["source"] == {"component": "dray-scheduler"}
    name = event["metadata"]["name"]
    api.answer("PATCH", f"{OLD_EVENTS}/{name}", FakeResponse({"kind": "Event"}))
    events.record(SOMEBODY, "Reason", "note")
    time.clock.advance(20)
    await events.write_due()
    assert api.asked[-1].document["count"] == 2


async def test_an_event_the_server_forgot_begins_anew():
    api, time = fake(lambda asked: FakeResponse(asked.body, 201)), InstantTime()
    events = recorder(client_of(api, time_source=time.time_source))
    for times in (1, 3, 1, 2):
        for _ in range(times):
            events.record(SOMEBODY, "Reason", "note")
        await events.write_due()
        time.clock.advance(3600)
    posted = [asked.document for asked in api.requests("POST", EVENTS)]
    assert [event.get("series", {}).get("count", 1) for event in posted] == [1, 3, 1, 2]
    assert len({event["metadata"]["name"] for event in posted}) == 4


async def test_failures_that_pass_are_waited_out_and_others_are_not():
    busy = failed(503, "ServiceUnavailable", "soon")
    api, time = fake(busy, busy, lambda asked: FakeResponse(asked.body, 201)), InstantTime()
    events = recorder(client_of(api, time_source=time.time_source, max_attempts=1))
    events.record(SOMEBODY, "Reason", "note")
    for _ in range(4):
        await events.write_due()
        time.clock.advance(10)
    assert (events.stats.created, events.stats.failed, events.stats.dropped) == (1, 2, 0)
    api = fake(failed(403, "Forbidden", "the namespace is being deleted"))
    events = recorder(client_of(api, time_source=time.time_source))
    events.record(SOMEBODY, "Reason", "note")
    for _ in range(4):
        await events.write_due()
        time.clock.advance(10)
    assert (len(api.requests("POST", EVENTS)), events.stats.dropped) == (1, 1)


async def test_a_server_that_never_answers_is_given_up():
    api, time = fake(failed(503, "ServiceUnavailable", "never")), InstantTime()
    events = recorder(client_of(api, time_source=time.time_source, max_attempts=1))
    events.record(SOMEBODY, "Reason", "note")
    for _ in range(20):
        await events.write_due()
        time.clock.advance(100)
    assert (len(api.requests("POST", EVENTS)), events.stats.dropped) == (5, 1)


async def test_nobody_is_talked_about_without_end():
    api, time = fake(lambda asked: FakeResponse(asked.body, 201)), InstantTime()
    events = recorder(client_of(api, time_source=time.time_source))
    for number in range(100):
        events.record(SOMEBODY, "Reason", f"attempt {number}")
    await events.write_due()
    assert len(api.requests("POST", EVENTS)) == EVENTS_PER_OBJECT
    assert events.stats.dropped == 100 - EVENTS_PER_OBJECT
    time.clock.advance(60)
    events.record(SOMEBODY, "Reason", "a minute later")
    await events.write_due()
    assert len(api.requests("POST", EVENTS)) == EVENTS_PER_OBJECT + 1


async def test_what_is_remembered_has_an_end():
    events = recorder(client_of(FakeApi()))
    for number in range(MAX_REMEMBERED + 50):
        events.record(InvolvedObject("v1", "Pod", "default", f"p{number}"), "Reason", "note")
    assert len(events._series) == len(events._pending) == len(events._limits) == MAX_REMEMBERED
    assert events.stats.dropped == 50


async def test_a_name_that_is_taken_is_not_the_end():
    api = fake(failed(409, "AlreadyExists", "taken"), lambda asked: FakeResponse(asked.body, 201))
    events = recorder(client_of(api))
    events.record(InvolvedObject("v1", "Pod", "default", "p" * 253), "Reason", "note")
    await events.write_due()
    names = [asked.document["metadata"]["name"] for asked in api.requests("POST", EVENTS)]
    assert len(set(names)) == 2
    assert max(map(len, names)) <= 253


@pytest.mark.parametrize(
    ("text", "limit", "short"),
    [("short", 10, "short"), ("x" * 11, 10, "x" * 7 + "…"), ("üüüüüü", 10, "üüü…"), ("\ud800", 10, "?")],
)
def test_texts_are_cut_at_letters(text, limit, short):
    assert truncate_text(text, limit) == short
    assert len(truncate_text(text, limit).encode()) <= limit


def test_structs_and_documents_can_be_talked_about():
    assert to_involved_object(claim("a")) == InvolvedObject(
        "resource.k8s.io/v1", "ResourceClaim", "default", "a"
    )
    assert to_involved_object(pod("p")) == InvolvedObject("v1", "Pod", "default", "p")


async def test_what_is_forgotten_while_others_are_written_harms_nobody(monkeypatch):
    events = recorder(client_of(FakeApi()))
    for number in range(40):
        events.record(InvolvedObject("v1", "Pod", "default", f"early-{number}", "u"), "Scheduled", "assigned")
    written = []

    async def flood(said, series):
        written.append(said.subject.name)
        for number in range(MAX_REMEMBERED + 1):
            events.record(
                InvolvedObject("v1", "Pod", "default", f"late-{number}", "u"), "Scheduled", "assigned"
            )

    monkeypatch.setattr(events, "_write_series", flood)
    await events.write_due()
    assert written == ["early-0"]
    assert events.stats.dropped > 0
