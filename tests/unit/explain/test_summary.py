"""The one-line summary for events: short, with the same words as the page."""

from __future__ import annotations

import pytest

from dray.explain import summarize
from tests.unit.explain.cluster import Cluster, claim, request
from tests.unit.explain.situations import SITUATIONS


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_summary_is_one_short_line(name):
    line = summarize(SITUATIONS[name]())
    assert 0 < len(line) <= 256
    assert "\n" not in line
    assert line == line.strip()


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_summary_is_deterministic(name):
    assert summarize(SITUATIONS[name]()) == summarize(SITUATIONS[name]())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "all_in_use",
            "no node can satisfy claim ml/gpus; node-b: the only device: in use by ml/other; "
            "node-a: of 2 devices: 2 in use by ml/old; "
            "hint: giving back claim ml/other (it holds gpu-0) would make node-b fit",
        ),
        (
            "unknown_class",
            "claim ml/gpus: request `gpu`: device class `gpus` does not exist; "
            "hint: asking for class `gpu` instead of `gpus` in request `gpu` would make node-a fit",
        ),
        ("passed_over", "fits node-a: gpu[0] gpu-2, gpu[1] gpu-4"),
        ("claims_of_one_pod", "fits node-a: gpu (claim first) gpu-0, gpu (claim second) gpu-1"),
        ("nothing_asked", "fits node-a"),
        ("no_nodes", "there are no nodes"),
    ],
)
def test_the_summary_of_a_situation(name, expected):
    assert summarize(SITUATIONS[name]()) == expected


def test_other_nodes_are_left_out_before_the_hint():
    cluster = Cluster()
    for i in range(9):
        cluster.node(f"a-node-with-a-long-name-{i}", "\n".join(f"gpu-{j} held=ml/old" for j in range(i + 2)))
    line = summarize(cluster.diagnose(claim(request())))
    assert line.startswith(
        "no node can satisfy claim ml/gpus; a-node-with-a-long-name-0: of 2 devices: 2 in use"
    )
    assert "; …; hint: giving back claim ml/old " in line
    assert len(line) <= 256


def test_the_last_nodes_are_left_out_when_the_line_is_too_long():
    cluster = Cluster()
    for i in range(9):
        cluster.node(f"node-{'x' * 60}-{i}", "\n".join(f"gpu-{j} held=ml/old" for j in range(i + 2)))
    line = summarize(cluster.diagnose(claim(request())))
    assert line.startswith("no node can satisfy claim ml/gpus; node-x")
    assert line.endswith("; …")
    assert len(line) <= 256


def test_a_search_that_gave_up_is_never_called_impossible():
    line = summarize(SITUATIONS["gave_up"]())
    assert "gave up" in line
    assert "no node can" not in line
