"""R-15 on a node, small: gates go off and on, processes are killed, and pods keep what they have."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import home, kubectl_program
from tests.faults.gates.campaign import Campaign
from tests.faults.gates.place import DRIVER, EVERYTHING, FEATURES, USED, Place, placed

__all__ = ["home", "kubectl_program"]

req = pytest.mark.req


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, kubectl_program: str, home: Path) -> Iterator[Place]:
    with placed(tmp_path_factory.mktemp("gates"), kubectl_program, home) as made:
        yield made


@pytest.fixture(scope="module")
def campaign(place: Place) -> Campaign:
    made = Campaign(place)
    made.begin()
    return made


def _alike(text: str, **names: str) -> object:
    """A document in which names that are only names are the same for all claims."""
    for stands_for, name in names.items():
        text = text.replace(name, stands_for)
    return json.loads(text)


@req("K4816-091")
def test_an_alternative_is_prepared_as_any_other_device(campaign: Campaign, place: Place) -> None:
    """What agent and driver wrote down of two claims differs by the name of the request, and by nothing."""
    seen = place.seen()
    told = []
    for name, wanted in (("either", "dev/gpu"), ("ordered", "dev")):
        claim = json.loads(seen.claims[name])
        uid, (user,) = claim["metadata"]["uid"], claim["status"]["reservedFor"]
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        assert result["request"] == wanted
        names = {"DEVICE": result["device"], "UID": uid, "POD": user["uid"], "NAME": name}
        record = json.loads(seen.files["checkpoint"])["claims"]
        (held,) = [each for each in record if each["uid"] == uid]
        (standing,) = [each for each in map(json.loads, seen.preparations.values()) if uid in str(each)]
        del standing["metadata"]
        kept = json.loads(seen.files[f"plugins/{DRIVER}/state/prepared/{uid}.json"])["content"]
        assert [each.pop("subrequest", None) for each in kept["devices"]] == [
            wanted.partition("/")[2] or None
        ]
        del kept["file"]
        document = json.dumps([held, standing, kept]).replace(f'"{wanted}"', '"REQUEST"')
        told.append(_alike(document.replace('"dev"', '"REQUEST"'), **names))
    assert told[0] == told[1]


@req("K4816-101", "K5075-156", "K5491-044", "K5773-038")
def test_what_pods_have_stays_when_features_go_and_come(campaign: Campaign) -> None:
    campaign.without("scheduler", *FEATURES)
    campaign.without("server", *FEATURES)
    campaign.again()
    assert campaign.tally.wrong == []


@req("K3063-166")
def test_pods_run_on_when_claims_are_switched_off_altogether(campaign: Campaign) -> None:
    campaign.without("both", *EVERYTHING)
    campaign.again()
    assert campaign.tally.wrong == []


@req("K4816-124")
def test_pods_run_on_while_there_is_no_server(campaign: Campaign, place: Place) -> None:
    before = place.seen()
    place.gone()
    pids = list(before.processes)
    assert all(os.path.exists(f"/proc/{pid}") for pid in pids)
    place.server()
    place.works()
    assert place.seen() == before


@req("K4816-102")
def test_what_is_given_back_is_given_back_without_the_features(campaign: Campaign, place: Place) -> None:
    place.server(*FEATURES)
    for name in USED:
        place.forget(name)
    left = place.seen()
    assert (left.claims, left.preparations, left.pods) == ({}, {}, {})
    assert list(left.files) == ["checkpoint"]
    assert b'"claims"' not in left.files["checkpoint"]
