"""Namespaces that were deleted while objects were still in them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.api import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api, path, serving
from tests.contract.documents import allocation, claim, namespace

NAMESPACES = "/api/v1/namespaces"
LEAVING = f"{NAMESPACES}/leaving"

WAYS: dict[str, tuple[str, Any, str]] = {
    "update": ("PUT", namespace("leaving"), "application/json"),
    "merge": ("PATCH", {"spec": {"finalizers": None}}, MERGE),
    "strategic": ("PATCH", {"spec": None}, STRATEGIC),
    "json": ("PATCH", [{"op": "remove", "path": "/spec"}], JSON_PATCH),
    "apply": ("PATCH", {**namespace("leaving"), "spec": {"finalizers": []}}, APPLY),
}


async def tell(api: Api, way: str) -> Any:
    """Try to take the server's own finalizer from the namespace."""
    method, body, kind = WAYS[way]
    query = {"fieldManager": "somebody", "force": "true"} if kind == APPLY else {}
    said = await api.ask(method, LEAVING, body, headers={"content-type": kind}, **query)
    assert said.code == 200, said.document
    return said.document


@pytest.mark.parametrize("way", WAYS)
async def test_a_namespace_does_not_go_before_what_is_in_it(way: str) -> None:
    """Without its own finalizer it went at once, and its claims kept their devices for ever."""
    where = path("resourceclaims", "c", namespace="leaving")
    async with serving() as api:
        await api.create(namespace("leaving"), NAMESPACES)
        held = await api.create(claim("c", "leaving", finalizers=["example.com/slow"]))
        await api.put({**held, "status": {"allocation": allocation()}}, f"{where}/status")
        assert (await tell(api, way))["spec"]["finalizers"] == ["kubernetes"]
        await api.delete(LEAVING)
        await api.until(where, lambda said: "deletionTimestamp" in said.document["metadata"])
        assert (await api.get(LEAVING))["status"]["phase"] == "Terminating"
        await api.patch(where, {"metadata": {"finalizers": None}})
        await api.gone(LEAVING)
        assert (await api.get("/dray/ledger", entries="true"))["entries"] == []


@pytest.mark.parametrize("field", ["spec", "status"])
@pytest.mark.parametrize("strange", ["text", [1], 5])
async def test_a_namespace_of_another_form_is_refused(field: str, strange: Any) -> None:
    async with serving() as api:
        said = await api.ask("POST", NAMESPACES, {**namespace("leaving"), field: strange})
        assert said.code == 400
        assert field in said.message


async def test_the_label_of_its_name_stays() -> None:
    """Selectors of namespaces by name rely on it."""
    async with serving() as api:
        await api.create(namespace("leaving"), NAMESPACES)
        labels = (await api.put(namespace("leaving"), LEAVING))["metadata"]["labels"]
        assert labels == {"kubernetes.io/metadata.name": "leaving"}
        changed = await api.patch(LEAVING, {"metadata": {"labels": {"kubernetes.io/metadata.name": "else"}}})
        assert changed["metadata"]["labels"] == {"kubernetes.io/metadata.name": "leaving"}


async def test_namespaces_go_one_by_one() -> None:
    """Discovery says that they cannot be deleted all at once; the server did it all the same."""
    async with serving() as api:
        await api.create(namespace("leaving"), NAMESPACES)
        assert (await api.ask("DELETE", NAMESPACES)).code == 405
        assert "deletionTimestamp" not in (await api.get(LEAVING))["metadata"]
