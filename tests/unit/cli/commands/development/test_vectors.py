"""`dray vectors run`: equal, decided, wrong, not built, and what is no vector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dray.simulation.vectors.vector import build_held_claims
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


def test_equal_answers(typed: Typed, desk: Path) -> None:
    save(desk, vector())
    ended = typed("vectors", "run", ".")
    assert (ended.code, ended.out, ended.err) == (0, "1 equal · 0 decided · 0 wrong · 0 not built\n", "")


SELECTOR = json.dumps(vector()["upstream"]["experimental"][0]["nodeSelector"], separators=(",", ":"))


def test_another_answer_is_wrong_and_both_are_shown(typed: Typed, desk: Path) -> None:
    save(desk, vector(device="b"))
    ended = typed("vectors", "run", "v.json")
    assert ended.code == 1
    assert ended.out.splitlines() == [
        "wrong: v",
        "  on record  claim 0: 1 device",
        "               r=d.example.com/p/b",
        f"               node selector {SELECTOR}",
        "  ours       claim 0: 1 device",
        "               r=d.example.com/p/a",
        f"               node selector {SELECTOR}",
        "  differs    claim 0, device 0: device",
        "  because    no decision explains it; Kubernetes should have: r=d.example.com/p/a",
        "0 equal · 0 decided · 1 wrong · 0 not built",
    ]


def test_no_answer_where_there_is_one_is_wrong(typed: Typed, desk: Path) -> None:
    save(desk, vector(device=None))
    ended = typed("vectors", "run", "v.json")
    assert ended.code == 1
    assert ended.out.splitlines()[1] == "  on record  refused"
    assert "  differs    outcome: refused on record, allocated here" in ended.out.splitlines()


def test_answers_that_look_the_same_in_a_line_are_distinguished(typed: Typed, desk: Path) -> None:
    """Nothing but the node selector differs."""
    question = vector()
    question["upstream"]["experimental"][0]["nodeSelector"] = None
    save(desk, question)
    ended = typed("vectors", "run", "v.json")
    assert ended.code == 1
    assert "  differs    claim 0, nodeSelector" in ended.out.splitlines()


def test_what_is_taken_is_taken(typed: Typed, desk: Path) -> None:
    taken = [{"driver": "d.example.com", "pool": "p", "device": "a"}]
    save(desk, vector(device="b", allocatedDevices=taken))
    assert typed("vectors", "run", "v.json").code == 0


def test_amounts_of_one_device_are_summed_and_a_share_without_any_is_one() -> None:
    device = {"driver": "d.example.com", "pool": "p"}
    entries = [
        {**device, "device": "a", "consumedCapacity": {"mem": "1"}},
        {**device, "device": "a", "consumedCapacity": {"mem": "2", "bw": "3"}},
        {**device, "device": "b", "consumedCapacity": {}},
    ]
    held = [
        result
        for claim in build_held_claims({"allocatedCapacityDevices": entries})
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
    ]
    shown = [(each.device, {name: str(x) for name, x in each.consumed_capacity.items()}) for each in held]
    assert shown == [("a", {"mem": "3", "bw": "3"}), ("b", {})]
    assert held[1].share_id is not None


def test_all_three_spellings_of_the_record(typed: Typed, desk: Path) -> None:
    results = vector()["upstream"]["experimental"]
    runs = {"experimental": {"error": None, "results": results, "resultsIsNil": False}}
    first, second = vector("first", runs=runs), vector("second", upstream={"results": results, "error": None})
    del first["upstream"]
    save(desk, first, second)
    assert typed("vectors", "run", ".").out.startswith("2 equal · ")


def test_one_vector_on_each_line(typed: Typed, desk: Path) -> None:
    lines = [json.dumps(vector(f"v{i}")) for i in range(3)]
    (desk / "many.jsonl").write_text("\n".join(lines) + "\n\n")
    assert typed("vectors", "run", "many.jsonl").out.startswith("3 equal · ")


def known(desk: Path, document: Any) -> str:
    (desk / "known.yaml").write_text(yaml.safe_dump(document))
    return "known.yaml"


def aborted(name: str = "v") -> dict[str, Any]:
    """All devices are asked for, and the pool is not complete."""
    text = "request r: asks for all devices, but resource pool d.example.com/p is currently being updated"
    question = vector(name, upstream={"experimental": {"error": text, "onNode": False}})
    question["slices"][0]["spec"]["pool"]["resourceSliceCount"] = 2
    exactly = question["claimsToAllocate"][0]["spec"]["devices"]["requests"][0]["exactly"]
    exactly["allocationMode"] = "All"
    del exactly["count"]
    return question


@pytest.mark.parametrize("flags", [[], ["--known"]])
def test_a_decision_explains_a_difference_nobody_listed(flags: list[str], typed: Typed, desk: Path) -> None:
    save(desk, aborted())
    ended = typed("vectors", "run", "v.json", *flags)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "0 equal · 1 decided · 0 wrong · 0 not built",
        "      1 all-sees-flawed-pool",
    ]


def test_what_is_decided_is_shown_when_asked(typed: Typed, desk: Path) -> None:
    save(desk, aborted())
    lines = typed("vectors", "run", "-v", "--known", "v.json").out.splitlines()
    assert lines[0] == "decided: v by all-sees-flawed-pool"
    assert lines[2:4] == ["  ours       refused", "  differs    outcome: fault on record, refused here"]
    assert "naming the pool; Kubernetes aborts the attempt" in lines[4]


def test_a_list_excuses_what_nothing_else_explains(typed: Typed, desk: Path) -> None:
    save(desk, vector(device="b"))
    entry = {"because": "we decided so", "cases": {"v": "r=d.example.com/p/a"}}
    listed = known(desk, {"differences": [entry]})
    ended = typed("vectors", "run", "v.json", "--known", listed, "-v")
    assert ended.code == 0
    assert ended.out.splitlines()[0] == "decided: v by listed"
    assert "  because    we decided so" in ended.out.splitlines()


def test_a_listed_difference_must_be_the_listed_one(typed: Typed, desk: Path) -> None:
    save(desk, vector(device="b"))
    listed = known(desk, {"differences": [{"because": "x", "cases": {"v": "refused"}}]})
    assert typed("vectors", "run", "v.json", "--known", listed).code == 1


def test_features_we_do_not_have_are_counted_apart(typed: Typed, desk: Path) -> None:
    """With the feature off Kubernetes passes over the slice; so it has nothing to give."""
    question = vector(device=None, features={"CompatibilityGroups": False})
    spec = question["slices"][0]["spec"]
    drawn = {"counterSet": "s", "counters": {"n": {"value": "1"}}, "compatibilityGroups": ["g"]}
    spec["devices"][0]["consumesCounters"] = [drawn]
    spec["pool"]["resourceSliceCount"] = 2
    counters = json.loads(json.dumps(question["slices"][0]))
    counters["metadata"]["name"] = "t"
    del counters["spec"]["devices"]
    counters["spec"]["sharedCounters"] = [{"name": "s", "counters": {"n": {"value": "1"}}}]
    question["slices"].append(counters)
    save(desk, question)
    ended = typed("vectors", "run", "v.json")
    assert ended.out.splitlines()[0] == "0 equal · 0 decided · 0 wrong · 1 not built"
    assert ended.code == 0


def test_the_same_for_machines(typed: Typed, desk: Path) -> None:
    save(desk, vector(), vector("w", device="b"))
    told = json.loads(typed("vectors", "run", ".", "-o", "json").out)
    assert told["summary"] == {"equal": 1, "decided": 0, "wrong": 1, "not built": 0}
    assert [(each["name"], each["standing"], each["differs"]) for each in told["vectors"]] == [
        ("v", "equal", []),
        ("w", "wrong", ["claim 0, device 0: device"]),
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
    broken: list[Any] = [[1], {"differences": [{"cases": {"v": "x"}}]}, {"refusals": []}]
    for document in broken:
        ended = typed("vectors", "run", "v.json", "--known", known(desk, document))
        assert ended.code == 2
        assert "not a list of known differences" in ended.err
