"""The scheduler's informers update cache, queue and binder, in that order, and only with its own pods."""

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
from dray.scheduler.binding.binder import Binder
from dray.scheduler.cache import SchedulerCache
from dray.scheduler.informers import SchedulerInformers
from dray.scheduler.queue import SchedulingQueue
from dray.scheduler.queueing_hints import CAPACITY_FREED, DEVICES_CHANGED, NODES_CHANGED
from tests.brute import builders as make
from tests.contract.intercepted_transport import InterceptedTransport
from tests.property.test_placement_law import OPEN
from tests.unit.placement.claim_objects import claim, having
from tests.unit.placement.pods_and_nodes import node
from tests.unit.scheduler.queue_fixture import pod


class InformersFixture:
    """Informers without a server: tests put objects on the shelves of the informers."""

    def __init__(self) -> None:
        client = Client(cast(InterceptedTransport, None))
        self.overlay = SchedulerCache(OPEN)
        self.queue = SchedulingQueue(TimeSource(ManualClock()))
        self.binder = Binder(client, self.overlay.claims)
        self.informers = SchedulerInformers(
            client, self.overlay, self.queue, self.binder, frozenset({"dray"})
        )
        self.left: list[str] = []
        self.informers.on_pod_dropped = self.left.append
        self.informers._register_listeners()
        self.heard: list[tuple[Signal, int, int]] = []
        """Each signal, with how many nodes and claims the overlay knew when it came."""
        self.queue.notify = self.wake  # type: ignore[method-assign]
        self.binder_heard: list[str] = []
        self.binder.reservations.locks.notify_changed = self.hear  # type: ignore[method-assign]

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
        shelf = getattr(self.informers, informer)._indexer
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


def test_the_cache_has_a_node_before_the_queue_is_notified() -> None:
    fixture = InformersFixture()
    fixture.see("nodes", node("a"), None)
    assert fixture.heard == [(NODES_CHANGED, 1, 0)]
    assert not fixture.overlay.has_node("a")


def test_a_node_that_only_says_what_it_has_may_grow_too() -> None:
    fixture = InformersFixture()
    small, large = (
        replace(bare, status=replace(bare.status, capacity=bare.status.allocatable, allocatable={}))
        for bare in (node("a", {"cpu": "1"}), node("a", {"cpu": "2"}))
    )
    fixture.see("nodes", small, large, small)
    assert fixture.signals() == [NODES_CHANGED, NODES_CHANGED]


def test_the_cache_has_a_claim_before_the_queue_is_notified_and_the_binder_learns_of_its_deletion() -> None:
    fixture = InformersFixture()
    held = having(claim(), "a/d0", where="a")
    fixture.see("claims", claim(), held, None)
    about = Signal(Topic.CLAIM, "ml/c")
    assert {signal for signal, *_ in fixture.heard} == {about, DEVICES_CHANGED}
    assert fixture.heard[0] == (about, 0, 1)
    assert fixture.heard[-1][1:] == (0, 0)
    assert fixture.binder_heard == ["c", "c", "c"]


def test_slices_and_classes() -> None:
    fixture = InformersFixture()
    fixture.see("slices", make.published(make.device("d0")), None)
    assert fixture.signals() == [DEVICES_CHANGED, DEVICES_CHANGED]
    fixture.see("classes", make.device_class("x"), None)
    assert fixture.signals() == [Signal(Topic.CLASS, "x")]


def ours(name: str = "a", **spec: object) -> Pod:
    return replace(pod(name), spec=replace(pod(name).spec, **spec))


def test_a_pod_of_ours_waits_until_it_has_its_node() -> None:
    fixture = InformersFixture()
    fixture.see("nodes", node("n"))
    fixture.see("pods", ours(), ours(node_name="n"))
    assert len(fixture.queue) == 0
    assert fixture.left == ["uid-a"]
    assert fixture.overlay.update_snapshot().node_states["n"].requests.get("pods") == 10**9


def test_a_pod_that_is_gone_is_forgotten_everywhere() -> None:
    fixture = InformersFixture()
    fixture.see("nodes", node("n"))
    fixture.see("pods", ours(node_name="n"), None)
    assert fixture.signals()[-1] == CAPACITY_FREED
    assert fixture.overlay.update_snapshot().node_states["n"].requests.get("pods") == 0
    fixture.see("pods", ours("b"), None)
    assert len(fixture.queue) == 0
    assert "uid-b" in fixture.left


@pytest.mark.parametrize(("name", "waits"), [("dray", 1), ("another", 0), ("", 0)])
def test_only_pods_that_name_this_scheduler_wait(name: str, waits: int) -> None:
    fixture = InformersFixture()
    fixture.see("pods", ours(scheduler_name=name))
    assert len(fixture.queue) == waits
