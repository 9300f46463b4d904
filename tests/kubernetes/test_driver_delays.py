"""A pod whose device cannot be prepared at once is not refused: a kubelet would try again a minute later."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.kubelet_node import KubeletNode, open_kubelet_node
from tests.kubernetes.start_delays import SCENARIOS, USUAL_CONFIG, open_delayed_starts


@pytest.fixture(scope="module")
def node(plane: ControlPlane) -> Iterator[KubeletNode]:
    plane.start_controllers("--leader-elect=false")
    plane.start_scheduler()
    with open_kubelet_node(plane, config=USUAL_CONFIG) as opened:
        yield opened


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_driver_waits_inside_of_the_call(name: str, plane: ControlPlane, node: KubeletNode) -> None:
    with open_delayed_starts(plane, node) as at:
        SCENARIOS[name](at)
        assert at.count_failures("second") == 0, at.explain()
