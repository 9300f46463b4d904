"""Objects whose deletion others blocked."""

from __future__ import annotations

from tests.contract.api import path, serving
from tests.contract.documents import config, namespace, owner


async def test_nobody_in_another_namespace_blocks_a_deletion() -> None:
    """An owner in another namespace is none, so what says it is owned from there does not hold it back."""
    async with serving() as api:
        await api.create(namespace("elsewhere"), "/api/v1/namespaces")
        mine = await api.create(config("mine"))
        blocking = owner(mine, blockOwnerDeletion=True)
        kept = config("theirs", "elsewhere", ownerReferences=[blocking], finalizers=["example.com/never"])
        await api.create(kept)
        await api.delete(path("configmaps", "mine"), {"propagationPolicy": "Foreground"})
        await api.gone(path("configmaps", "mine"))


async def test_a_dependent_beside_it_still_does() -> None:
    async with serving() as api:
        mine = await api.create(config("mine"))
        blocking = owner(mine, blockOwnerDeletion=True)
        await api.create(config("part", ownerReferences=[blocking], finalizers=["example.com/slow"]))
        await api.delete(path("configmaps", "mine"), {"propagationPolicy": "Foreground"})
        await api.until(
            path("configmaps", "part"), lambda said: "deletionTimestamp" in said.document["metadata"]
        )
        assert (await api.get(path("configmaps", "mine")))["metadata"]["finalizers"] == ["foregroundDeletion"]
        await api.patch(path("configmaps", "part"), {"metadata": {"finalizers": None}})
        await api.gone(path("configmaps", "mine"))
