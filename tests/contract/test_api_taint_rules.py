"""Taint rules at the server: versions, status, the time of the taint, and feature gates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dray.cluster.live.snapshot import read_snapshot
from dray.gates import GateSet
from dray.server.background.bootstrap import AUTO_UPDATE_ANNOTATION
from dray.store.memory import MemoryStore
from tests.contract.api import MERGE, serving
from tests.contract.servers import reaching

RULES = "/apis/resource.k8s.io/v1/devicetaintrules"
OLDER = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


def rule(effect: str = "NoSchedule", version: str = "v1", **taint: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"pool": "p"}, "taint": {"key": "k", "effect": effect, **taint}},
    }


async def test_a_rule_is_the_same_in_both_versions() -> None:
    async with serving() as api:
        made = await api.ask("POST", OLDER, rule(version="v1beta2"))
        assert made.code == 201
        found = await api.ask("GET", f"{RULES}/r")
        assert found.document["apiVersion"] == "resource.k8s.io/v1"
        assert found.document["spec"] == made.document["spec"]
        assert (await api.ask("GET", "/apis/resource.k8s.io/v1beta1/devicetaintrules")).code == 404


async def test_the_status_is_written_separately_and_does_not_change_the_generation() -> None:
    async with serving() as api:
        await api.ask("POST", RULES, rule() | {"status": {"conditions": [{"type": "Mine"}]}})
        condition = {
            "type": "EvictionInProgress",
            "status": "False",
            "reason": "NoEffect",
            "message": "nobody",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        response = await api.patch(f"{RULES}/r/status", {"status": {"conditions": [condition]}}, MERGE)
        assert response["status"]["conditions"] == [condition]
        assert response["metadata"]["generation"] == 1
        changed = await api.patch(
            f"{RULES}/r", {"spec": {"deviceSelector": {"pool": None}}, "status": None}, MERGE
        )
        assert (changed["metadata"]["generation"], changed["status"]) == (2, response["status"])
        wrong = await api.ask(
            "PATCH", f"{RULES}/r/status", {"status": {"conditions": [{}]}}, headers={"content-type": MERGE}
        )
        assert wrong.code == 422


@pytest.mark.parametrize(
    ("change", "anew"),
    [
        ({"effect": "NoExecute"}, True),
        ({"value": "v"}, False),
        ({"effect": "NoExecute", "timeAdded": "2026-02-02T00:00:00Z"}, False),
    ],
    ids=["another effect", "another value", "a time of its own"],
)
async def test_the_time_of_a_taint_restarts_with_its_effect(change: dict[str, str], anew: bool) -> None:
    async with serving() as api:
        long_ago = "2020-01-01T00:00:00Z"
        await api.ask("POST", RULES, rule(timeAdded=long_ago))
        changed = await api.patch(f"{RULES}/r", {"spec": {"taint": change}}, MERGE)
        since = changed["spec"]["taint"]["timeAdded"]
        assert (since > "2026-02-02T00:00:00Z") is anew
        assert anew or since == change.get("timeAdded", long_ago)


async def test_a_taint_without_a_time_gets_that_of_its_creation() -> None:
    async with serving() as api:
        made = await api.ask("POST", RULES, rule())
        assert made.document["spec"]["taint"]["timeAdded"] == made.document["metadata"]["creationTimestamp"]


@pytest.mark.parametrize("gate", ["DRADeviceTaints", "DRADeviceTaintRules"])
async def test_taint_rules_are_served_only_with_their_gates(gate: str) -> None:
    store = MemoryStore()
    async with serving(store) as api:
        await api.ask("POST", RULES, rule())
    async with serving(store, GateSet.from_defaults().override({gate: False})) as api:
        assert (await api.ask("GET", RULES)).code == 404
    async with serving(store) as api:
        assert (await api.ask("GET", f"{RULES}/r")).code == 200


async def test_roles_of_an_older_server_get_missing_rules_unless_annotated() -> None:
    store = MemoryStore()
    names = ("dray:controller", "dray:scheduler")
    mine = {"apiGroups": ["mine.example.com"], "resources": ["things"], "verbs": ["get"]}
    async with serving(store) as api:
        fresh = {name: await api.ask("GET", f"{ROLES}/{name}") for name in names}
        for name in names:
            await api.patch(f"{ROLES}/{name}", {"rules": [mine]}, MERGE)
        kept = {"metadata": {"annotations": {AUTO_UPDATE_ANNOTATION: "false"}}}
        await api.patch(f"{ROLES}/dray:scheduler", kept, MERGE)
    async with serving(store) as api:
        grown = await api.ask("GET", f"{ROLES}/dray:controller")
        assert grown.document["rules"] == [mine, *fresh["dray:controller"].document["rules"]]
        assert (await api.ask("GET", f"{ROLES}/dray:scheduler")).document["rules"] == [mine]
        revision = grown.document["metadata"]["resourceVersion"]
    async with serving(store) as api:
        again = await api.ask("GET", f"{ROLES}/dray:controller")
        assert again.document["metadata"]["resourceVersion"] == revision


async def test_a_scheduler_without_access_to_taint_rules_warns_about_tainted_devices(tmp_path: Path) -> None:
    reader = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "reader"},
        "rules": [
            {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]},
            {
                "apiGroups": ["resource.k8s.io", "cdi.k8s.io"],
                "resources": [
                    "resourceslices",
                    "deviceclasses",
                    "resourceclaims",
                    "resourceclaimtemplates",
                ],
                "verbs": ["list"],
            },
        ],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "somebody"}],
    }
    async with reaching("inside", tmp_path) as reach:
        admin = reach.client()
        for document in (reader, binding, rule()):
            await admin.create(document)
        assert [each.metadata.name for each in (await read_snapshot(admin)).bundle.rules] == ["r"]
        seen = (await read_snapshot(reach.client(user="somebody"))).bundle
        assert seen.rules == ()
        assert seen.remarks[0] == (
            "not allowed to read devicetaintrules.resource.k8s.io: the answer comes from the rest "
            "(devices look as if no rule tainted them)"
        )
