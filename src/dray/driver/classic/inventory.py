"""What a classic driver has on each node, in objects of its own: a config map named after the node.

The node part tells with `publish_inventory`, the controller reads with `ClassicInventory`. The objects are in
the driver's own namespace, where only its accounts have rights (see `manifests`), so nobody else can invent
or hide anything. They belong to the node and go with it.
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
"""Which driver a config map tells of: names of drivers are values that labels may have."""

CONFIG_MAP: Final = get_kind("ConfigMap")


class ClassicInventory:
    """What is where, as the node parts told last."""

    def __init__(self, client: Client, driver: str, namespace: str) -> None:
        self.informer = Informer(client, CONFIG_MAP, namespace, label_selector=f"{INVENTORY_LABEL}={driver}")
        self._namespace = namespace

    def get(self, node: str) -> Mapping[str, str]:
        """What a node part told; empty when it did not."""
        return _get_content(self.informer.get(node, self._namespace))

    def list_nodes(self) -> tuple[str, ...]:
        """The nodes that something was told of, in the order of their names."""
        return tuple(sorted(each["metadata"]["name"] for each in self.informer.list_all()))

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call this whenever something else is told."""
        self.informer.listen(lambda _new: listener(), lambda _old, _new: listener(), lambda _old: listener())

    on = get
    """Older name of `get`."""
    nodes = list_nodes
    """Older name of `list_nodes`."""


async def publish_inventory(
    client: Client, driver: str, namespace: str, node: str, content: Mapping[str, str]
) -> None:
    """Say what is on a node; nothing is written when that is known already."""
    try:
        known = await client.get(CONFIG_MAP, node, namespace)
    except NotFoundError:
        owner = await client.get(Node, node)
        reference = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner.metadata.uid}
        made = {
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
            await client.create(made)
            return
        except AlreadyExistsError:
            known = await client.get(CONFIG_MAP, node, namespace)
    gone = {name: None for name in _get_content(known) if name not in content}
    if gone or _get_content(known) != content:
        change = MergePatch({"metadata": {"labels": {INVENTORY_LABEL: driver}}, "data": {**gone, **content}})
        await client.patch(CONFIG_MAP, node, change, namespace)


def _get_content(document: Any) -> Mapping[str, str]:
    return {} if document is None else document.get("data") or {}
