"""The page for people: the exact text of every situation, and its layout."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.explain import PageRole, render_text
from dray.explain.rendering.text import MAX_ENTRIES
from tests.unit.explain.cluster import Cluster, attribute, claim, memory, request
from tests.unit.explain.situations import SITUATIONS, closest, pool_incomplete


def _pages() -> dict[str, str]:
    text = Path(__file__).with_name("pages.txt").read_text(encoding="utf-8")
    sections = text.split("\n=== ")[1:]
    return {name: page.rstrip("\n") for name, _, page in (section.partition("\n") for section in sections)}


PAGES = _pages()


def test_every_situation_has_a_page_and_every_page_a_situation():
    assert list(PAGES) == list(SITUATIONS)


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_page_reads(name):
    assert render_text(SITUATIONS[name]()) == PAGES[name]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
@pytest.mark.parametrize("name", SITUATIONS)
def test_a_page_of_any_width_says_the_same_words(name, width):
    diagnosis = SITUATIONS[name]()
    page = render_text(diagnosis, width)
    words = PAGES[name].replace("closest", "").split()
    assert page.replace("closest", "").split() == words


@pytest.mark.parametrize("name", SITUATIONS)
def test_no_line_is_longer_than_the_page_is_wide(name):
    for line in render_text(SITUATIONS[name](), 100).splitlines():
        assert len(line) <= 100


def test_a_very_narrow_page_is_as_wide_as_a_page_must_be():
    assert render_text(closest(), 1) == render_text(closest(), 40)


def test_paint_decorates_and_changes_no_word():
    painted = render_text(closest(), paint=lambda role, text: f"<{role}>{text}</{role}>")
    assert "<headline>Pod ml/train cannot run yet" in painted
    assert "  <node>node-a</node>   gpu[0]" in painted
    assert "<mark>closest</mark>" in painted
    assert "<hint>hint:</hint> tolerating" in painted
    for role in PageRole:
        painted = painted.replace(f"<{role}>", "").replace(f"</{role}>", "")
    assert painted == render_text(closest())


def test_entries_beyond_the_page_limit_are_counted():
    cluster = Cluster()
    for i in range(MAX_ENTRIES + 3):
        cluster.node(f"node-{i:02}", "\n".join(f"gpu-{j} held=ml/old" for j in range(i + 2)))
    page = render_text(cluster.diagnose(claim()))
    assert page.count("devices:") == MAX_ENTRIES
    assert "  … and 3 more nodes with other reasons" in page


def test_nodes_with_the_same_text_are_one_entry_even_when_their_devices_differ():
    cluster = Cluster().node("node-a", "gpu-0 held=ml/old\ngpu-1 size=x")
    cluster.node("node-b", "gpu-0 size=x\ngpu-1 held=ml/other")
    page = render_text(cluster.diagnose(claim(request(count=2))))
    assert "  node-a and node-b   gpu[0] found, gpu[1] not\n" in page
    assert "of 2 devices: 1 found · 1 in use\n" in page


def test_pools_named_after_their_nodes_are_one_entry():
    page = render_text(pool_incomplete())
    assert "node-a and node-b   pool gpu.example/<node> is incomplete" in page


def test_pools_with_the_same_flaw_keep_their_names():
    cluster = (
        Cluster().node("node-a", "gpu-0", slices=2).node("node-b", "gpu-0", slices=2, driver="other.example")
    )
    page = render_text(cluster.diagnose(claim()))
    assert "  node-a   pool gpu.example/node-a is incomplete: 1 of 2 slices, generation 1" in page
    assert "  node-b   pool other.example/node-b is incomplete: 1 of 2 slices, generation 1" in page


def test_a_flawed_pool_of_another_driver_is_not_blamed():
    cluster = (
        Cluster().node("node-a", "gpu-0 held=ml/old").node("node-a", "nic-0", driver="nic.example", slices=2)
    )
    assert "nic.example" not in render_text(cluster.diagnose(claim()))


def test_devices_of_another_class_do_not_count():
    cluster = Cluster().node("node-a", "gpu-0 held=ml/old\ngpu-1 held=ml/old")
    cluster.node("node-a", "nic-0\nnic-1\nnic-2", driver="nic.example")
    assert "of 2 devices: 2 in use by ml/old" in render_text(cluster.diagnose(claim()))


def test_devices_of_the_same_driver_but_another_class_do_count():
    cluster = Cluster().node("node-a", "gpu-0 size=large held=ml/old\ngpu-1 size=small")
    cluster.add_class("large", attribute("size", "large"))
    page = render_text(cluster.diagnose(claim(request(of="large"))))
    assert "of 2 devices: 1 not in class large · 1 in use by ml/old" in page


def test_many_devices_of_one_request_become_a_range():
    lines = "\n".join(f"gpu-{i}" for i in range(6))
    page = render_text(Cluster().node("node-a", lines).diagnose(claim(request(count=8))))
    assert "gpu[0..5] found, gpu[6] not" in page


def test_text_from_objects_cannot_control_a_terminal():
    asked = request(where=[attribute("size", "x\x1b[31m\nlarge")])
    page = render_text(Cluster().node("node-a", "gpu-0 size=small").diagnose(claim(asked)))
    assert "\x1b" not in page
    assert "cannot read" in page


def test_the_mark_of_the_closest_node_never_makes_a_line_too_long():
    selector = f"{memory('>=', '96Gi')} && {attribute('model', 'a-very-long-name')}"
    cluster = Cluster().node("node-a", "gpu-0 memory:1Gi model=x").node("node-b", "gpu-0 memory:2Gi model=x")
    for width in range(40, 140):
        page = render_text(cluster.diagnose(claim(request(where=[selector]))), width)
        marked = [line for line in page.splitlines() if line.endswith("  closest")]
        assert len(marked) == 1
        assert len(marked[0]) <= max(width, 2 + len("node-b") + 3 + 40)
