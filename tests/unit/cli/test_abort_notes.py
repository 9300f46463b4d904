"""Where Kubernetes aborts a whole attempt and dray places, the output has a note."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Typed
from tests.unit.simulation.cluster_text import claim, device_class, node, pod, slice_of

DRIVER = "gpu.example.com"
SIZED = device_class("gpu", '\'device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("1Gi"))\'')
PLAIN = device_class("gpu", "'device.driver == \"gpu.example.com\"'")
NODES = node("node-a") + node("node-b")
EVERY = claim("c", "gpu").replace("count: 1", "allocationMode: All")


def _numa(text: str, *values: int) -> str:
    for number, value in enumerate(values):
        attribute = f"attributes: {{numa: {{int: {value}}}}}"
        text = text.replace(f"{{name: gpu-{number}}}", f"{{name: gpu-{number}, {attribute}}}")
    return text


def _matching(text: str) -> str:
    rule = f"    constraints: [{{matchAttribute: {DRIVER}/numa}}]\n"
    return text.replace("    requests:\n", f"{rule}    requests:\n")


FAILING_SELECTOR = NODES + SIZED + slice_of("node-a", "gpu-0") + slice_of("node-b", "gpu-0", memory="8Gi")
INCOMPLETE = (
    NODES
    + PLAIN
    + slice_of("node-a", "gpu-0").replace("resourceSliceCount: 1", "resourceSliceCount: 2")
    + slice_of("node-b", "gpu-0")
)
CONSTRAINED = (
    NODES
    + PLAIN
    + _numa(slice_of("node-a", "gpu-0", "gpu-1"), 0, 1)
    + _numa(slice_of("node-b", "gpu-0", "gpu-1"), 1, 1)
)

CASES = [
    pytest.param(
        FAILING_SELECTOR,
        claim("c", "gpu"),
        f"the selector of class gpu fails on device {DRIVER}/node-a/gpu-0 of node-a: no such key",
        id="selector",
    ),
    pytest.param(
        INCOMPLETE,
        EVERY,
        f"request `r` asks for all devices, and on node-a pool {DRIVER}/node-a is incomplete: 1 of 2 slices",
        id="incomplete",
    ),
    pytest.param(
        CONSTRAINED,
        _matching(EVERY),
        f"request `r` asks for all devices, and device {DRIVER}/node-a/gpu-1 of node-a breaks a constraint",
        id="constraint",
    ),
]


@pytest.mark.parametrize(("cluster", "asked", "why"), CASES)
def test_what_kubernetes_would_not_place_is_said(
    typed: Typed, desk: Path, cluster: str, asked: str, why: str
) -> None:
    (desk / "c.yaml").write_text(cluster + asked + pod("x", claims="c"))
    start = f"note: pod default/x: Kubernetes would abort the whole attempt: {why}"
    ended = typed("allocate", "-f", "c.yaml")
    assert ended.code == 0
    (note,) = [line for line in ended.out.splitlines() if line.startswith("note:")]
    assert note.startswith(start)
    assert start in typed("allocate", "-f", "c.yaml", "--write").err
    said = json.loads(typed("allocate", "-f", "c.yaml", "-o", "json").out)["placed"][0]["kubernetesAborts"]
    assert said["certain"] is True
    assert said["why"].startswith(why)
    page = typed("explain", "-f", "c.yaml", "pod/x")
    assert page.code == 0
    assert page.out.splitlines()[-1].startswith(f"note: Kubernetes would abort the whole attempt: {why}")
    told = json.loads(typed("explain", "-f", "c.yaml", "pod/x", "-o", "json").out)
    assert told["kubernetesAborts"] == said


@pytest.mark.parametrize(
    ("cluster", "asked"),
    [
        pytest.param(INCOMPLETE, claim("c", "gpu"), id="incomplete, but not all wanted"),
        pytest.param(CONSTRAINED, EVERY, id="all wanted, without a constraint"),
        pytest.param(CONSTRAINED, _matching(claim("c", "gpu", count=2)), id="constraint, but not all wanted"),
        pytest.param(
            NODES + SIZED + slice_of("node-a", "gpu-0", memory="8Gi"), claim("c", "gpu"), id="all well"
        ),
    ],
)
def test_nothing_is_said_where_kubernetes_places_as_well(
    typed: Typed, desk: Path, cluster: str, asked: str
) -> None:
    (desk / "c.yaml").write_text(cluster + asked)
    ended = typed("allocate", "-f", "c.yaml")
    assert ended.code == 0
    assert "Kubernetes" not in ended.out
    assert (
        json.loads(typed("allocate", "-f", "c.yaml", "-o", "json").out)["placed"][0]["kubernetesAborts"]
        is None
    )


def test_an_alternative_that_nobody_comes_to_is_prepared_as_well(typed: Typed, desk: Path) -> None:
    asked = claim("c", "gpu", "other").replace(
        "{name: other, deviceClassName: other, count: 1}",
        "{name: other, deviceClassName: other, allocationMode: All}",
    )
    broken = device_class("other", '\'device.attributes["gpu.example.com"].model == "x"\'')
    (desk / "c.yaml").write_text(node("node-b") + PLAIN + broken + slice_of("node-b", "gpu-0") + asked)
    ended = typed("allocate", "-f", "c.yaml")
    assert ended.code == 0
    assert "would abort the whole attempt: the selector of class other fails on device" in ended.out


def test_of_many_nodes_kubernetes_may_not_come_to_the_one_that_fails(typed: Typed, desk: Path) -> None:
    many = "".join(node(f"other-{number}") for number in range(100))
    (desk / "c.yaml").write_text(FAILING_SELECTOR + many + claim("c", "gpu"))
    assert (
        "note: claim default/c: Kubernetes may abort the whole attempt"
        in typed("allocate", "-f", "c.yaml").out
    )


def test_what_makes_a_pool_invalid_is_not_always_the_same(typed: Typed, desk: Path) -> None:
    one = slice_of("node-a", "gpu-0").replace("generation: 1", "generation: 1, priority: 1")
    two = slice_of("node-a", "gpu-1").replace("name: node-a-gpu", "name: more-gpu")
    both = (one + two).replace("resourceSliceCount: 1", "resourceSliceCount: 2")
    (desk / "c.yaml").write_text(NODES + PLAIN + both + slice_of("node-b", "gpu-0") + EVERY)
    ended = typed("allocate", "-f", "c.yaml")
    assert "Kubernetes may abort the whole attempt: request `r` asks for all devices" in ended.out
    assert "its slices disagree on pool.priority: 0 and 1" in ended.out


def test_text_output_is_limited(typed: Typed, desk: Path) -> None:
    devices = [f"gpu-{number}" for number in range(25)]
    cluster = NODES + SIZED + slice_of("node-a", "gpu-0") + slice_of("node-b", *devices, memory="8Gi")
    (desk / "c.yaml").write_text(cluster + "".join(claim(f"c-{number}", "gpu") for number in range(25)))
    notes = [line for line in typed("allocate", "-f", "c.yaml").out.splitlines() if line.startswith("note:")]
    assert len(notes) == 21
    assert notes[-1] == "note: the same for 5 more; `-o json` says it of each"
