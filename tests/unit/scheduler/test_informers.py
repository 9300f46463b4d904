"""What the scheduler sees reaches overlay, queue and binder, in that order, and only its own pods."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec.structs import replace

from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.timing import TimeSource
from dray.clock import ManualClock
from dray.placement.rejections import Signal, Topic
from dray.scheduler.binder import Binder
from dray.scheduler.cache import SchedulerCache
from dray.scheduler.informers import SchedulerInformers
from dray.scheduler.queue import SchedulingQueue
from dray.scheduler.queueing_hints import CAPACITY_FREED, DEVICES_CHANGED, NODES_CHANGED
from tests.brute import builders as make
from tests.contract.unruly import Unruly
from tests.property.test_placement_law import OPEN
from tests.unit.placement.claim_objects import claim, having
from tests.unit.placement.pods_and_nodes import node
from tests.unit.scheduler.waiting import pod


class Scene:
    """Sights without a server: tests put objects on the shelves of the informers."""

    def __init__(self) -> None:
        client = Client(cast(Unruly, None))
        self.overlay = SchedulerCache(OPEN)
        self.queue = SchedulingQueue(TimeSource(ManualClock()))
        self.binder = Binder(client, self.overlay.claims)
        self.sights = SchedulerInformers(client, self.overlay, self.queue, self.binder, frozenset({"dray"}))
        self.left: list[str] = []
        self.sights.on_pod_dropped = self.left.append
        self.sights._register_listeners()
        self.heard: list[tuple[Signal, int, int]] = []
        """Each signal, with how many nodes and claims the overlay knew when it came."""
        self.queue.notify = self.wake  # type: ignore[method-assign]
        self.binder_heard: list[str] = []
        self.binder.notify_claim_changed = self.hear  # type: ignore[method-assign]

    def hear(self, claim: ResourceClaim) -> None:
        self.binder_heard.append(claim.metadata.name)

    def wake(self, signal: Signal) -> None:
        known = len(self.overlay.update_snapshot().node_states), len(list(self.overlay.claims))
        self.heard.append((signal, *known))

    def signals(self) -> list[Signal]:
        found = [signal for signal, *_ in self.heard]
        self.heard.clear()
        return found

    def see(self, informer: str, *objects: object) -> None:
        """What an informer sees, one after the other; None: it is gone."""
        shelf = getattr(self.sights, informer)._indexer
        before = None
        for found in objects:
            for listener in shelf._listeners:
                if found is None:
                    listener.deleted(before)
                elif before is None:
                    listener.added(found)
                else:
                    listener.updated(before, found)
            before = found or before


def test_the_overlay_knows_of_a_node_before_the_queue_hears() -> None:
    scene = Scene()
    scene.see("nodes", node("a"), None)
    assert scene.heard == [(NODES_CHANGED, 1, 0)]
    assert not scene.overlay.has_node("a")


def test_a_node_that_only_says_what_it_has_may_grow_too() -> None:
    scene = Scene()
    small, large = (
        replace(bare, status=replace(bare.status, capacity=bare.status.allocatable, allocatable={}))
        for bare in (node("a", {"cpu": "1"}), node("a", {"cpu": "2"}))
    )
    scene.see("nodes", small, large, small)
    assert scene.signals() == [NODES_CHANGED, NODES_CHANGED]


def test_a_claim_is_known_before_anybody_hears_and_its_binder_hears_of_its_end() -> None:
    scene = Scene()
    held = having(claim(), "a/d0", where="a")
    scene.see("claims", claim(), held, None)
    about = Signal(Topic.CLAIM, "ml/c")
    assert {signal for signal, *_ in scene.heard} == {about, DEVICES_CHANGED}
    assert scene.heard[0] == (about, 0, 1)
    assert scene.heard[-1][1:] == (0, 0)
    assert scene.binder_heard == ["c", "c", "c"]


def test_slices_and_classes() -> None:
    scene = Scene()
    scene.see("slices", make.published(make.device("d0")), None)
    assert scene.signals() == [DEVICES_CHANGED, DEVICES_CHANGED]
    scene.see("classes", make.device_class("x"), None)
    assert scene.signals() == [Signal(Topic.CLASS, "x")]


def ours(name: str = "a", **spec: object) -> Pod:
    return replace(pod(name), spec=replace(pod(name).spec, **spec))


def test_a_pod_of_ours_waits_until_it_has_its_node() -> None:
    scene = Scene()
    scene.see("nodes", node("n"))
    scene.see("pods", ours(), ours(node_name="n"))
    assert len(scene.queue) == 0
    assert scene.left == ["uid-a"]
    assert scene.overlay.update_snapshot().node_states["n"].requests.get("pods") == 10**9


def test_a_pod_that_is_gone_is_forgotten_everywhere() -> None:
    scene = Scene()
    scene.see("nodes", node("n"))
    scene.see("pods", ours(node_name="n"), None)
    assert scene.signals()[-1] == CAPACITY_FREED
    assert scene.overlay.update_snapshot().node_states["n"].requests.get("pods") == 0
    scene.see("pods", ours("b"), None)
    assert len(scene.queue) == 0
    assert "uid-b" in scene.left


@pytest.mark.parametrize(("name", "waits"), [("dray", 1), ("another", 0), ("", 0)])
def test_only_pods_that_name_this_scheduler_wait(name: str, waits: int) -> None:
    scene = Scene()
    scene.see("pods", ours(scheduler_name=name))
    assert len(scene.queue) == waits
