"""`dray vectors run`: passed, failed, known, not built, and what is no vector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.cli.conftest import Typed

DEVICES = ["a", "b"]


def vector(name: str = "v", device: str | None = "a", **changes: Any) -> dict[str, Any]:
    """One claim for one of two devices, and an answer on record."""
    result = {
        "devices": {"results": [{"request": "r", "driver": "d.example.com", "pool": "p", "device": device}]},
        "nodeSelector": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
            ]
        },
    }
    exactly = {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}
    return {
        "name": name,
        "features": {"AdminAccess": True, "CompatibilityGroups": True},
        "node": {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}},
        "classes": [
            {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {}}
        ],
        "slices": [
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": "s"},
                "spec": {
                    "driver": "d.example.com",
                    "nodeName": "n",
                    "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": each} for each in DEVICES],
                },
            }
        ],
        "claimsToAllocate": [
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": "k", "namespace": "ns"},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
            }
        ],
        "upstream": {"experimental": [result] if device else []},
        **changes,
    }


def save(desk: Path, *vectors: dict[str, Any]) -> None:
    for each in vectors:
        (desk / f"{each['name']}.json").write_text(json.dumps(each))


def test_equal_answers_pass(typed: Typed, desk: Path) -> None:
    save(desk, vector())
    ended = typed("vectors", "run", ".")
    assert (ended.code, ended.out, ended.err) == (0, "1 passed, 0 failed\n", "")


@pytest.mark.parametrize("device", ["b", None])
def test_another_answer_fails_and_shows_both(device: str | None, typed: Typed, desk: Path) -> None:
    save(desk, vector(device=device))
    ended = typed("vectors", "run", "v.json")
    assert ended.code == 1
    recorded = "r=d.example.com/p/b" if device else "refused"
    assert ended.out.splitlines() == [
        "failed: v",
        f"  on record  {recorded}",
        "  ours       r=d.example.com/p/a",
        "0 passed, 1 failed",
    ]


def test_what_is_taken_is_taken(typed: Typed, desk: Path) -> None:
    taken = [{"driver": "d.example.com", "pool": "p", "device": "a"}]
    save(desk, vector(device="b", allocatedDevices=taken))
    assert typed("vectors", "run", "v.json").code == 0


def test_all_three_spellings_of_the_record(typed: Typed, desk: Path) -> None:
    results = vector()["upstream"]["experimental"]
    runs = {"experimental": {"error": None, "results": results, "resultsIsNil": False}}
    first, second = vector("first", runs=runs), vector("second", upstream={"results": results, "error": None})
    del first["upstream"]
    save(desk, first, second)
    assert typed("vectors", "run", ".").out == "2 passed, 0 failed\n"


def test_one_vector_on_each_line(typed: Typed, desk: Path) -> None:
    lines = [json.dumps(vector(f"v{i}")) for i in range(3)]
    (desk / "many.jsonl").write_text("\n".join(lines) + "\n\n")
    assert typed("vectors", "run", "many.jsonl").out == "3 passed, 0 failed\n"


def known(desk: Path, document: Any) -> str:
    (desk / "known.yaml").write_text(yaml.safe_dump(document))
    return "known.yaml"


def test_a_listed_difference_is_no_failure_and_a_stale_one_is(typed: Typed, desk: Path) -> None:
    save(desk, vector(device="b"))
    entry = {"because": "we decided so", "cases": {"v": "r=d.example.com/p/a"}}
    listed = known(desk, {"differences": [entry]})
    ended = typed("vectors", "run", "v.json", "--known", listed, "-v")
    assert ended.code == 0
    assert ended.out.splitlines()[-2:] == [
        "  because    we decided so",
        "0 passed, 0 failed, 1 known to differ",
    ]
    save(desk, vector())
    ended = typed("vectors", "run", "v.json", "--known", listed)
    assert ended.code == 1
    assert ended.out.splitlines()[-1] == "0 passed, 0 failed, 1 listed as different, but equal"


def test_a_listed_difference_must_be_the_listed_one(typed: Typed, desk: Path) -> None:
    save(desk, vector(device="b"))
    listed = known(desk, {"differences": [{"because": "x", "cases": {"v": "refused"}}]})
    assert typed("vectors", "run", "v.json", "--known", listed).code == 1


def test_an_abort_may_be_a_refusal_when_the_reason_is_met_where_it_says(typed: Typed, desk: Path) -> None:
    question = vector(upstream={"experimental": {"error": "pool d.example.com/p is bad", "onNode": False}})
    question["slices"][0]["spec"]["pool"]["resourceSliceCount"] = 2
    save(desk, question)
    for pattern, code in (("pool (?P<about>\\S+) is bad", 0), ("pool (?P<about>d.example.com)", 1)):
        rule = {"error": pattern, "reasons": ["PoolIncomplete"], "because": "one node only"}
        ended = typed("vectors", "run", "v.json", "--known", known(desk, {"refusals": [rule]}))
        assert ended.code == code
    assert typed("vectors", "run", "v.json").code == 1


def test_fields_of_gates_we_do_not_have_are_counted_apart(typed: Typed, desk: Path) -> None:
    question = vector(device="b")
    question["slices"][0]["spec"]["devices"][0]["compatibilityGroups"] = []
    save(desk, question)
    ended = typed("vectors", "run", "v.json")
    assert (ended.code, ended.out) == (0, "0 passed, 0 failed, 1 not built\n")


def test_the_same_for_machines(typed: Typed, desk: Path) -> None:
    save(desk, vector(), vector("w", device="b"))
    told = json.loads(typed("vectors", "run", ".", "-o", "json").out)
    assert (told["summary"]["passed"], told["summary"]["failed"]) == (1, 1)
    assert [(each["name"], each["standing"]) for each in told["vectors"]] == [
        ("v", "passed"),
        ("w", "failed"),
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{}", "not a vector: expected an object with `claimsToAllocate`"),
        ("{", "v.json:1: "),
        (json.dumps(vector(upstream=7)), "vector `v` cannot be read"),
        (json.dumps({**vector(), "slices": [{"kind": "x"}]}), "vector `v` cannot be read"),
    ],
)
def test_what_is_no_vector_is_broken_input(content: str, words: str, typed: Typed, desk: Path) -> None:
    (desk / "v.json").write_text(content)
    ended = typed("vectors", "run", "v.json")
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err


def test_other_files_in_a_folder_are_passed_over_and_named(typed: Typed, desk: Path) -> None:
    save(desk, vector())
    (desk / "index.json").write_text("[]")
    ended = typed("vectors", "run", ".")
    assert (ended.code, ended.err) == (0, "dray: not a vector, passed over: index.json\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["vectors", "run"], "missing argument"),
        (["vectors", "run", "gone"], "cannot read `gone`"),
        (["vectors", "run", "."], "no vectors in folder `.`"),
        (["vectors", "walk"], "walk"),
    ],
)
def test_a_wrong_command_line(arguments: list[str], words: str, typed: Typed) -> None:
    ended = typed(*arguments)
    assert ended.code == 2
    assert words in ended.err.lower()


def test_a_list_that_is_none_is_broken_input(typed: Typed, desk: Path) -> None:
    save(desk, vector())
    broken: list[Any] = [[1], {"differences": [{"cases": {"v": "x"}}]}, {"refusals": [{"error": "("}]}]
    for document in broken:
        ended = typed("vectors", "run", "v.json", "--known", known(desk, document))
        assert ended.code == 2
        assert "not a list of known differences" in ended.err
