"""Ways around the permissions of users that existed once."""

from __future__ import annotations

from typing import Any

from tests.contract.api import MERGE, Api, path, serving
from tests.contract.documents import config

RBAC = "rbac.authorization.k8s.io"


async def give(api: Api, user: str, *rules: dict[str, Any]) -> Api:
    """Let somebody do these things in the namespace `default`, and nothing else."""
    metadata = {"name": user, "namespace": "default"}
    role = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": list(rules)}
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": user},
        "subjects": [{"kind": "User", "name": user}],
    }
    await api.create(role, path("roles", group=RBAC))
    await api.create(binding, path("rolebindings", group=RBAC))
    await api.get(path("rolebindings", group=RBAC))  # rights are read from the cache, which knows them now
    return api.as_user(user)


async def test_a_selector_does_not_name_what_is_created() -> None:
    """A right to one name is no right to create under any name, whatever the query says besides."""
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"], "resourceNames": ["mine"]}
    async with serving() as api:
        await api.create(config("mine"))
        await api.create(config("other"))
        somebody = await give(api, "somebody", rule)
        for selector in ("", "metadata.name=mine"):
            said = await somebody.ask("POST", path("configmaps"), config("new"), fieldSelector=selector)
            assert said.code == 403
        # Where a selector does choose, it counts as the name.
        assert await somebody.names(path("configmaps"), fieldSelector="metadata.name=mine") == ["mine"]
        other = await somebody.ask("GET", path("configmaps"), fieldSelector="metadata.name=other")
        assert other.code == 403


async def test_a_label_gives_away_no_rights() -> None:
    """Labels put roles together: who could only write a label gave `cluster-admin` to everybody who views."""
    clusterroles = path("clusterroles", group=RBAC, namespace="")
    rule = {"apiGroups": [RBAC], "resources": ["clusterroles"], "verbs": ["get", "update", "patch"]}
    role = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "labels"},
        "rules": [rule],
    }
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "labels"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "labels"},
        "subjects": [{"kind": "User", "name": "somebody"}],
    }
    label = {"metadata": {"labels": {f"{RBAC}/aggregate-to-view": "true"}}}
    async with serving() as api:
        await api.create(role, clusterroles)
        await api.create(binding, path("clusterrolebindings", group=RBAC, namespace=""))
        await api.get(clusterroles)
        somebody = api.as_user("somebody")
        for name in ("cluster-admin", "edit"):
            said = await somebody.ask(
                "PATCH", f"{clusterroles}/{name}", label, headers={"content-type": MERGE}
            )
            assert said.code == 403
            assert "permissions not currently held" in said.message
        # Rights that are held may be passed on, and administrators label what they like.
        await somebody.patch(f"{clusterroles}/labels", label)
        await api.patch(f"{clusterroles}/edit", label)
