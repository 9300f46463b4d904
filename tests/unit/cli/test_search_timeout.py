"""`--search-timeout`: a search that takes too long gives up, and reports how far it came."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dray.allocator.search.resumable import SEARCH_SECONDS
from dray.cli.commands.manifests.allocate import command
from dray.cli.input.options import SecondsType
from dray.manifests import to_json
from tests.brute.hard import WANTED, hard_constraints, hard_devices
from tests.unit.cli.conftest import Typed

DRIVER = "gpu.example.com"
API = "resource.k8s.io/v1"


@pytest.fixture
def hard(desk: Path) -> str:
    """A claim whose search does not end in this lifetime, and one that is easy, after it."""
    pool = {"name": "node-a", "generation": 1, "resourceSliceCount": 1}
    asked = {"deviceClassName": DRIVER, "count": WANTED}
    requests = [{"name": "gpu", "exactly": asked}]
    devices = {"requests": requests, "constraints": hard_constraints(DRIVER)}
    one = {"requests": [{"name": "gpu", "exactly": {**asked, "count": 1}}]}
    documents = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}},
        {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": {}},
        {
            "apiVersion": API,
            "kind": "ResourceSlice",
            "metadata": {"name": "s"},
            "spec": {"driver": DRIVER, "pool": pool, "nodeName": "node-a", "devices": hard_devices()},
        },
        *(
            {
                "apiVersion": API,
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "ml"},
                "spec": {"devices": asks},
            }
            for name, asks in (("hard", devices), ("one", one))
        ),
    ]
    (desk / "hard.json").write_text(to_json(documents))
    return "hard.json"


def test_allocate_says_what_was_given_up_and_places_the_others(typed: Typed, hard: str) -> None:
    ended = typed("allocate", "-f", hard, "--search-timeout", "300ms")
    assert ended.code == 1
    assert "placed 1 of 2" in ended.out
    (line,) = [line for line in ended.out.splitlines() if line.startswith("not placed")]
    assert f"of {WANTED} devices found: it may fit, a longer --search-timeout may tell" in line
    document = json.loads(typed("allocate", "-f", hard, "--search-timeout", "100ms", "-o", "json").out)
    assert [each["gaveUp"] for each in document["notPlaced"]] == [True]


def test_explain_says_how_far_it_came(typed: Typed, hard: str) -> None:
    ended = typed("explain", "-f", hard, "claim/hard", "--search-timeout", "0.3")
    assert ended.code == 1
    assert "the search gave up on node-a" in ended.out
    assert re.search(r"gave up after [0-9.]+ s of work, with at most \d+ of 26 ", ended.out)
    again = typed("explain", "-f", hard, "claim/hard", "--search-timeout", "0.2s", "-o", "json")
    found = json.loads(again.out)
    (report,) = found["stories"]
    assert report["outcome"] == "GaveUp"
    assert report["seconds"] >= 0.2
    assert 0 < report["mostFound"] < report["wanted"] == WANTED
    assert report["stuckAt"] == "gpu"


@pytest.mark.parametrize("wrong", ["0", "-1s", "soon", "1d", "", "1e3", "nan", "9" * 20])
def test_a_duration_that_is_none_is_named(typed: Typed, hard: str, wrong: str) -> None:
    ended = typed("allocate", "-f", hard, f"--search-timeout={wrong}")
    assert (ended.code, ended.out) == (2, "")
    assert "--search-timeout" in ended.err
    assert "expected a duration above 0, like `10s` or `500ms`" in ended.err


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10.0), ("500ms", 0.5), ("2m", 120.0), ("1.5", 1.5), ("1h", 3600.0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert SecondsType().convert(text, None, None) == seconds


def test_the_default_is_that_of_the_allocator() -> None:
    (option,) = [each for each in command.params if each.name == "search_timeout"]
    assert SecondsType().convert(option.default, None, None) == SEARCH_SECONDS
