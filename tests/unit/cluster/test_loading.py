"""A process loads only the service it runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

SAYS = "import sys; {imports}; print(*sorted(set({without}) & set(sys.modules)))"
ALONE = "import dray.cluster.services.standalone"
NO_SERVER = ["cryptography", "dray.server.app", "uvicorn"]


@pytest.mark.parametrize(
    ("imports", "without"),
    [
        pytest.param("import dray.cluster.services.api_server", ["aiohttp", "yarl"], id="server"),
        pytest.param(
            f"{ALONE}, dray.cluster.services.components, dray.scheduler.scheduling_loop",
            [*NO_SERVER, "dray.controllers.runner"],
            id="scheduler",
        ),
        pytest.param(
            f"{ALONE}, dray.cluster.services.components, dray.controllers.runner",
            [*NO_SERVER, "dray.scheduler.scheduling_loop"],
            id="controller",
        ),
        pytest.param(
            f"{ALONE}, dray.cluster.services.node_agents", ["dray.server.app", "uvicorn"], id="node"
        ),
    ],
)
def test_a_service_loads_no_other(imports, without):
    says = SAYS.format(imports=imports, without=without)
    done = subprocess.run(
        [sys.executable, "-c", says], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []
