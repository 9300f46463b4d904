"""The life cycles of claims in a cluster of dray and in one of Kubernetes, compared field by field."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.differential.__main__ import report, run_scenarios
from tests.differential.cluster_side import ClusterSide
from tests.differential.scenario import load_own_scenarios
from tests.e2e.processes import cluster
from tests.kubernetes.control_plane import ControlPlane


def test_life_cycles_of_claims_are_the_same(plane: ControlPlane, tmp_path: Path) -> None:
    plane.start_scheduler()
    plane.start_controllers()
    with cluster(tmp_path) as own:
        own.service("scheduler", "dray:scheduler")
        own.service("controller", "dray:controller", "--upkeep")

        async def run() -> int:
            sides = ClusterSide(str(plane.kubeconfig)), ClusterSide(str(own.server.kubeconfig))
            try:
                return report(await run_scenarios(*sides, list(load_own_scenarios())), verbose=True)
            finally:
                for side in sides:
                    await side.close()

        assert asyncio.run(run()) == 0
