"""Stock with something changed: what is freed, what is completed, and that the original stays."""

from __future__ import annotations

from dray.allocator.allocate import run_search
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.what_if import assume_complete_pool, remove_claim_usage
from dray.allocator.requests import normalize_claims
from dray.allocator.search.trace import Solved
from tests.unit.explain.cluster import DRIVER, Cluster, claim

POOL = (DRIVER, "node-a")


def fits(inventory: DeviceInventory, cluster: Cluster) -> bool:
    ask = normalize_claims([claim()], inventory.classes.get)
    return isinstance(run_search(ask, inventory.get_node_view(cluster.nodes[0]).shape), Solved)


def test_what_a_claim_alone_holds_is_freed():
    inventory = Cluster().node("node-a", "gpu-0 held=ml/one\ngpu-1 held=ml/two").inventory
    freed = remove_claim_usage(inventory.usage, "ml/one", [POOL]).get_pool(POOL)
    assert freed.devices == {"gpu-1"}
    assert freed.holders == {"gpu-1": ("ml/two",)}


def test_what_it_shares_with_others_stays():
    lines = "gpu-0 shared memory:10Gi share=ml/one/memory:4Gi share=ml/two/memory:4Gi"
    usage = Cluster().node("node-a", lines).inventory.usage
    assert remove_claim_usage(usage, "ml/one", [POOL]).get_pool(POOL) is usage.get_pool(POOL)


def test_only_the_pools_that_are_named_are_looked_at():
    cluster = Cluster().node("node-a", "gpu-0 held=ml/one").node("node-b", "gpu-0 held=ml/one")
    freed = remove_claim_usage(cluster.inventory.usage, "ml/one", [POOL])
    assert freed.get_pool(POOL).devices == frozenset()
    assert freed.get_pool((DRIVER, "node-b")).devices == {"gpu-0"}


def test_freeing_changes_nothing_that_was_there():
    inventory = Cluster().node("node-a", "gpu-0 held=ml/one").inventory
    remove_claim_usage(inventory.usage, "ml/one", [POOL])
    assert inventory.usage.get_pool(POOL).devices == {"gpu-0"}


def test_a_pool_assumed_complete_offers_its_devices():
    cluster = Cluster().node("node-a", "gpu-0", slices=2)
    inventory = cluster.inventory
    completed = assume_complete_pool(inventory, cluster.nodes[0], POOL)
    assert completed is not None
    assert fits(completed, cluster)
    assert not fits(inventory, cluster)


def test_it_keeps_usage_and_the_devices_of_other_pools():
    cluster = (
        Cluster().node("node-a", "gpu-0 held=ml/old", slices=2).node("node-a", "nic-0", driver="nic.example")
    )
    completed = assume_complete_pool(cluster.inventory, cluster.nodes[0], POOL)
    assert completed is not None
    assert not fits(completed, cluster)
    assert [pool_view.names for pool_view in completed.get_node_view(cluster.nodes[0]).pool_views] == [
        ("gpu-0",),
        ("nic-0",),
    ]


def test_a_pool_without_devices_is_no_use_complete_either():
    cluster = Cluster().node("node-a", "nic-0", driver="nic.example")
    assert assume_complete_pool(cluster.inventory, cluster.nodes[0], POOL) is None
