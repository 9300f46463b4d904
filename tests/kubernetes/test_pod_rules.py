"""The recorded answers to pods and workloads are still those of Kubernetes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.control_plane import ApiServerOptions, ControlPlane
from tests.mutations.servers import KubernetesServer
from tests.unit.api.validation.pods.pod_cases import load_new_pods
from tests.unit.api.validation.pods.workload_cases import load_workloads

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesServer]:
    folder: Path = tmp_path_factory.mktemp("plane")
    with ControlPlane.open(folder, ApiServerOptions(flags=("--allow-privileged=true",))) as plane:
        asked = KubernetesServer(plane.kubeconfig)
        yield asked
        asked.close()


async def list_causes(server: KubernetesServer, where: str, document: dict[str, Any]) -> list[str]:
    body = json.dumps(document).encode()
    _, _, answer = await server.send("POST", where, {"dryRun": "All"}, body, "application/json")
    causes = (json.loads(answer).get("details") or {}).get("causes") or ()
    return sorted(f"{cause['reason'].removeprefix('FieldValue')} {cause['field']}" for cause in causes)


async def find_other_answers(server: KubernetesServer) -> list[tuple[str, list[str], list[str]]]:
    cases: list[tuple[str, str, dict[str, Any], list[str]]] = [
        *((case.id, PODS, case.pod, case.causes) for case in load_new_pods()),
        *((case.id, case.path, case.workload, case.causes) for case in load_workloads()),
    ]
    return [
        (name, found, causes)
        for name, where, document, causes in cases
        if (found := await list_causes(server, where, document)) != causes
    ]


def test_kubernetes_still_gives_these_causes(server: KubernetesServer) -> None:
    assert asyncio.run(find_other_answers(server)) == []
