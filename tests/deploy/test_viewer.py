"""The role `dray:viewer` allows reading what live commands read, and nothing else."""

from __future__ import annotations

from typing import Any

from dray.client.object_refs import resolve_kind
from dray.cluster.live.snapshot import SNAPSHOT_TYPES
from dray.server.auth.authz.bootstrap_roles import build_bootstrap_documents
from tests.deploy.rendering import read_manifests


def list_grants(role: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_role_reads_the_kinds_of_a_snapshot_and_no_others() -> None:
    (role,) = read_manifests("viewer.yaml")
    kinds = [resolve_kind(kind) for kind in SNAPSHOT_TYPES]
    expected = {(kind.group, kind.plural, verb) for kind in kinds for verb in ("get", "list", "watch")}
    assert list_grants(role) == expected
    assert role["metadata"]["labels"] == {"rbac.authorization.k8s.io/aggregate-to-view": "true"}


def test_the_server_of_dray_has_the_same_role() -> None:
    (role,) = read_manifests("viewer.yaml")
    (built_in,) = [
        each
        for each in build_bootstrap_documents()
        if each["kind"] == "ClusterRole" and each["metadata"]["name"] == "dray:viewer"
    ]
    assert list_grants(built_in) == list_grants(role)
    assert built_in["metadata"]["labels"].items() >= role["metadata"]["labels"].items()
