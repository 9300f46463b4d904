"""The inventory of a classic driver: one config map per node with what the driver has there.

The driver on a node writes it with `publish_inventory`, and the controller reads it with `ClassicInventory`.
The config maps are in the driver's own namespace, where only its accounts have rights (see `deploy`), so
nobody else can invent or hide entries. The node owns its config map, which is garbage-collected with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from dray.api.core import Node
from dray.client.client import Client
from dray.client.errors import AlreadyExistsError, NotFoundError
from dray.client.informers.informer import Informer
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch

INVENTORY_LABEL: Final = "dray.dev/inventory"
"""The label with the driver of a config map; every driver name is a valid label value."""

CONFIG_MAP: Final = get_kind("ConfigMap")


class ClassicInventory:
    """The inventory of all nodes, kept up to date by an informer."""

    def __init__(self, client: Client, driver: str, namespace: str) -> None:
        self.informer = Informer(client, CONFIG_MAP, namespace, label_selector=f"{INVENTORY_LABEL}={driver}")
        self._namespace = namespace

    def get(self, node: str) -> Mapping[str, str]:
        """Return the inventory of a node; empty when it has none."""
        return _get_content(self.informer.get(node, self._namespace))

    def list_nodes(self) -> tuple[str, ...]:
        """Return the nodes that have an inventory, sorted by name."""
        return tuple(sorted(each["metadata"]["name"] for each in self.informer.list_all()))

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call the listener after every change."""
        self.informer.listen(lambda _new: listener(), lambda _old, _new: listener(), lambda _old: listener())

    on = get
    """Older name of `get`."""
    nodes = list_nodes
    """Older name of `list_nodes`."""


async def publish_inventory(
    client: Client, driver: str, namespace: str, node: str, content: Mapping[str, str]
) -> None:
    """Write the inventory of a node, unless it is already stored."""
    try:
        stored = await client.get(CONFIG_MAP, node, namespace)
    except NotFoundError:
        owner = await client.get(Node, node)
        reference = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner.metadata.uid}
        config_map = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": node,
                "namespace": namespace,
                "labels": {INVENTORY_LABEL: driver},
                "ownerReferences": [reference],
            },
            "data": dict(content),
        }
        try:
            await client.create(config_map)
            return
        except AlreadyExistsError:
            stored = await client.get(CONFIG_MAP, node, namespace)
    removed = {name: None for name in _get_content(stored) if name not in content}
    if removed or _get_content(stored) != content:
        data = {**removed, **content}
        patch = MergePatch({"metadata": {"labels": {INVENTORY_LABEL: driver}}, "data": data})
        await client.patch(CONFIG_MAP, node, patch, namespace)


def _get_content(document: Any) -> Mapping[str, str]:
    return {} if document is None else document.get("data") or {}
