"""Small sizes of the faults at the server; `python -m tests.faults.server --full` has the full ones."""

from __future__ import annotations

import asyncio
import re

import pytest
from msgspec.structs import replace

from dray.api.json_text import read_json
from dray.server.http.limits import ServerLimits
from dray.server.watch.cache_verifier import CacheVerifier
from tests.contract.api import path
from tests.faults.server import audited, consistency, crowd, exhaustion, hostile, increments, spies
from tests.faults.server.hosted import hosted
from tests.faults.server.place import placed

SEED = 20261116


def run(work):
    async def bounded():
        async with asyncio.timeout(100):
            return await work

    return asyncio.run(bounded())


def test_small_r05_a_list_from_the_cache_is_the_list_of_the_store():
    async def test() -> consistency.Tally:
        async with placed() as place:
            return await consistency.campaign(place.api, place.store, 150, SEED)

    tally = run(test())
    assert tally.wrong == []
    assert tally.compared > 300


def test_small_r05_a_corrupted_cache_is_caught_by_the_comparison():
    async def test() -> list[str]:
        async with placed() as place:
            await consistency.campaign(place.api, place.store, 40, SEED)
            cache = place.server.cache
            spoiled = next(held for held in cache._objects.values() if b"configmaps" in held.key)
            bad = spoiled.value.replace(b'"uid":"', b'"uid":"x')
            cache._objects[spoiled.key] = replace(spoiled, value=bad)
            tally = consistency.Tally()
            await consistency.compare(place.api, place.store, "configmaps", tally)
            return tally.wrong

    assert len(run(test())) == 1


def test_small_r05_the_server_detects_corruption_within_a_period_and_is_not_ready(monkeypatch):
    async def test() -> tuple[int, int, str, bool]:
        monkeypatch.setattr(CacheVerifier.__init__, "__defaults__", (0.05,))
        async with placed() as place:
            await consistency.campaign(place.api, place.store, 10, SEED)
            await asyncio.sleep(0.2)
            ready = await place.api.ask("GET", "/readyz")
            cache = place.server.cache
            lost = next(held for held in cache._objects.values() if b"namespaces" in held.key)
            cache._objects[lost.key] = replace(lost, value=b"{}")
            await asyncio.sleep(0.3)
            failing = await place.api.ask("GET", "/readyz")
            alive = await place.api.ask("GET", "/livez")
            noted = any("cache" in line and "ERROR" in line for line in place.lines)
            assert alive.code == 200
            return ready.code, failing.code, str(failing.document), noted

    before, after, words, noted = run(test())
    assert (before, after) == (200, 500)
    assert "other bytes in the cache than in the store" in words
    assert noted


def test_small_r06_watchers_that_stop_reading_are_cut_off_and_others_miss_nothing(tmp_path):
    with hosted(tmp_path / "server", stalled_seconds=crowd.STALLED) as server:
        found = run(crowd.campaign(server, watchers=20, stopped=4, writes=25, heavy=200_000))
    assert (found.cut, found.lost, found.missing) == (4, 0, 0), str(found)
    assert found.peak - found.before < 150, str(found)


def test_small_r07_no_increment_is_lost():
    async def test(careful: bool) -> increments.Sum:
        async with placed() as place:
            return await increments.campaign(place.api, 32, 2, careful=careful)

    found = run(test(True))
    assert (found.lost, found.acknowledged, found.strange) == (0, 64, 0)
    assert run(test(False)).lost > 0, "who does not say what was read overwrites; the test can see it"


def test_small_r19_every_limit_is_reported_and_others_are_served(tmp_path):
    with hosted(tmp_path / "server", **exhaustion.SMALL) as server:
        outcomes = run(exhaustion.offend(server, *exhaustion.OFFENCES))
        assert server.process.poll() is None
    assert [str(outcome) for outcome in outcomes if not outcome.well] == []
    assert outcomes[0].reader.took
    assert outcomes[0].reader.strange == 0


def test_small_r19_a_user_beyond_the_rate_limit_gets_retry_after():
    async def test() -> tuple[set[int], int, str]:
        async with placed(limits=ServerLimits(requests_per_second=5)) as place:
            said = [await place.api.ask("GET", path("pods")) for _ in range(30)]
            other = await place.api.as_user("other", "system:masters").ask("GET", path("pods"))
            return {each.code for each in said}, other.code, said[-1].headers.get("retry-after", "")

    codes, other, again = run(test())
    assert codes == {200, 429}
    assert other == 200
    assert again == "1"


def test_small_s07_hostile_bodies_are_never_a_fault_of_the_server():
    async def test() -> tuple[hostile.Tally, list[str]]:
        async with placed() as place:
            tally = await hostile.campaign(place.api, SEED, 0, 1200)
            return tally, [line for line in place.lines if "fault of the server" in line]

    tally, faults = run(test())
    assert tally.faults == []
    assert faults == []
    assert {201, 400, 422} <= set(tally.codes)


def test_small_s13_no_secret_is_in_anything_the_server_writes(tmp_path):
    found = run(spies.campaign(tmp_path))
    assert found.leaks == []
    assert all(found.searched.values())
    for name in ("dray_open_connections", "dray_store_commit_duration_seconds_count", "dray_cache_revision"):
        assert re.search(rf"^{name} [1-9]", found.metrics, re.MULTILINE)


@pytest.mark.parametrize("where", ["dray.telemetry.logs.redact", "dray.server.audit.events.redact"])
def test_a_log_without_redaction_would_be_detected(tmp_path, monkeypatch, where):
    monkeypatch.setattr(where, lambda text: text)
    assert run(spies.campaign(tmp_path)).leaks


def test_small_s14_whatever_is_stored_was_noted_before_also_when_the_server_is_killed(tmp_path):
    record = run(audited.campaign(tmp_path / "server", kills=1, seed=SEED, clients=4))
    assert record.sound, str(record)
    assert record.acknowledged


def test_an_answer_carries_the_id_of_its_audit_lines():
    async def test() -> tuple[str, list[dict]]:
        async with placed() as place:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}}
            said = await place.api.ask("POST", path("configmaps"), body)
            lines = [read_json(line) for line in place.audit.read_bytes().splitlines()]
            return said.headers["audit-id"], [line for line in lines if line["event"] == "complete"]

    audit_id, lines = run(test())
    assert lines[-1]["id"] == audit_id
    assert lines[-1]["name"].startswith("made-")
    assert lines[-1]["code"] == 201
    assert lines[-1]["decision"]


def test_what_the_server_does_by_itself_is_audited_too():
    async def test() -> list[tuple[str, str, str, str]]:
        async with placed() as place:
            owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}
            made = await place.api.create(owner)
            reference = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": "owner",
                "uid": made["metadata"]["uid"],
            }
            owned = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "owned", "ownerReferences": [reference]},
            }
            await place.api.create(owned)
            await place.api.delete(path("configmaps", "owner"))
            await place.api.gone(path("configmaps", "owned"))
            lines = [read_json(line) for line in place.audit.read_bytes().splitlines()]
            return [
                (line["user"], line["verb"], line["resource"], line["name"])
                for line in lines
                if line["event"] == "inside"
            ]

    inside = run(test())
    assert ("system:apiserver", "create", "namespaces", "default") in inside
    assert [line[1:] for line in inside if line[3] == "owned"] == [("delete", "configmaps", "owned")]
