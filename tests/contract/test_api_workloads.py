"""Workloads through the API: their templates are pods, and their selectors select them."""

from __future__ import annotations

import pytest

from tests.contract.api import MERGE, path, serving
from tests.contract.test_api_pod_changes import list_causes
from tests.unit.api.validation.pods.workload_cases import WorkloadCase, build_workload, load_workloads

CASES = load_workloads()


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
async def test_a_workload_is_refused_for_the_causes_of_kubernetes(case: WorkloadCase) -> None:
    async with serving() as api:
        answer = await api.ask("POST", case.path, case.workload)
        assert list_causes(answer) == case.causes, answer.document
        assert answer.code == (422 if case.causes else 201)


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"metadata": {"labels": {"a": "b"}}}, []),
        ({"spec": {"replicas": 3}}, []),
        ({"spec": {"replicas": -3}}, ["Invalid spec.replicas"]),
        ({"spec": {"selector": {"matchLabels": {"app": None, "tier": "a"}}}}, None),
        ({"spec": {"template": {"spec": {"containers": []}}}}, ["Required spec.template.spec.containers"]),
    ],
)
async def test_a_change_of_a_workload_is_checked(patch: dict, expected: list[str] | None) -> None:
    async with serving() as api:
        where = path("deployments", group="apps")
        await api.create(build_workload("Deployment", {}), where)
        answer = await api.ask("PATCH", f"{where}/thing", patch, headers={"content-type": MERGE})
        if expected is None:
            assert list_causes(answer) == ["Invalid spec.selector", "Invalid spec.template.metadata.labels"]
        else:
            assert list_causes(answer) == expected
