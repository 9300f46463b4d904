"""Short words for pods, nodes and seats, in the field names of the wire."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dray.allocator.inventory.device_inventory import Stock
from dray.allocator.inventory.usage import Usage
from dray.api.codec import decoder_of
from dray.api.core import Node, Pod
from dray.placement.framework import Opinion, Plugin
from dray.placement.pending_pod import Subject
from dray.placement.rejections import Verdict
from dray.placement.resource_requests import NOTHING, Needs, needs_of
from dray.placement.snapshot import Seat, Snapshot

ROOMY = {"cpu": "4", "memory": "8Gi", "pods": "10"}
STOCK = Stock([], [], Usage(), lambda _expression, _driver, _device: True)


def pod(**spec: Any) -> Pod:
    """A pod with this spec."""
    document = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec}
    found: Pod = decoder_of(Pod).decode(json.dumps(document))
    return found


def container(requests: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """A container with requests; `limits`, `restartPolicy` as they are."""
    limits = more.pop("limits", None)
    resources = {"requests": dict(requests or {}), "limits": dict(limits or {})}
    return {"name": "c", "resources": resources, **more}


def asking(**amounts: str) -> Pod:
    """A pod of one container with these requests; `gpu` is an extended resource."""
    named = {"example.com/gpu" if name == "gpu" else name: amount for name, amount in amounts.items()}
    return pod(containers=[container(named)])


def node(name: str = "n", allocatable: Mapping[str, str] = ROOMY, **more: Any) -> Node:
    """A node; `labels`, `taints` and `unschedulable` as they are."""
    document = {
        "metadata": {"name": name, "labels": more.pop("labels", {})},
        "spec": more,
        "status": {"allocatable": dict(allocatable)},
    }
    found: Node = decoder_of(Node).decode(json.dumps(document))
    return found


def photo(*nodes: Node, needs: Mapping[str, Needs] | None = None) -> Snapshot:
    """A snapshot of these nodes, without devices."""
    return Snapshot.of(nodes, STOCK, needs)


def seat(place: Node, *held: Pod) -> Seat:
    """A node with pods on it."""
    needs = NOTHING
    for each in held:
        needs = needs.plus(needs_of(each))
    return photo(place, needs={place.metadata.name: needs}).seats[place.metadata.name]


def subject(asked: Pod) -> Subject:
    """A pod to be placed."""
    return Subject(asked, needs_of(asked))


def opinion_of(plugin: Plugin, asked: Pod, *nodes: Node) -> Opinion | None:
    """What a plugin thinks of a pod; the plugins tested with this never refuse the whole cluster."""
    found = plugin.opinion(subject(asked), photo(*nodes))
    assert not isinstance(found, Verdict)
    return found


def verdict_of(plugin: Plugin, asked: Pod, place: Seat) -> Verdict | None:
    """What a plugin tells one seat, by name or by filter."""
    found = plugin.opinion(subject(asked), photo(place.node))
    assert not isinstance(found, Verdict)
    if found is None:
        return None
    if found.names is not None and place.name not in found.names:
        return found.elsewhere
    return found.filter(place) if found.filter is not None else None


def scores_of(plugin: Plugin, asked: Pod, places: Sequence[Seat]) -> list[int]:
    """The scores of seats, brought to 0..100."""
    found = plugin.opinion(subject(asked), photo(*[place.node for place in places]))
    assert isinstance(found, Opinion)
    assert found.score is not None
    return list(found.spread([found.score(place) for place in places]))
