"""Resource requests of pods, where others counted wrong."""

from __future__ import annotations

from dray.placement.resource_requests import compute_requests
from dray.values.quantity import NANOS_PER_UNIT
from tests.unit.placement.pods_and_nodes import container, pod

GPU = "example.com/gpu"


def test_s18_init_containers_sidecars_and_main_containers_share_an_extended_resource() -> None:
    """The sidecar starts before the init container of 2, and stays: 3 at that moment, 2 when all runs."""
    counted = pod(
        containers=[container({GPU: "1"})],
        initContainers=[
            container({GPU: "1"}),
            container({GPU: "1"}, restartPolicy="Always"),
            container({GPU: "2"}),
        ],
    )
    assert compute_requests(counted).get(GPU) == 3 * NANOS_PER_UNIT
