"""A bundle: a cluster in files, as objects.

Theory of operation: documents come in as `dray.manifests` reads them (plain manifests, folders, lists, what
`kubectl get -o yaml` prints). Each is decoded, put into a namespace and given its defaults, as an API server
would do. What cannot be decoded, and what stands there twice, is broken input: a cluster with holes gives
wrong answers, so all of it is named and nothing is answered. What is merely not ours is set aside and said.

Rules for this file: nothing is placed or judged here, and nothing is made up without a remark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from dray.api.classic import ClassicClaim
from dray.api.codec import Decoded, decode_document
from dray.api.core import Namespace, Node, Pod
from dray.api.defaults import with_defaults
from dray.api.kinds import Kind
from dray.api.meta import ObjectMeta
from dray.api.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dray.errors import DecodeError, InputError
from dray.lint.identity import Known, Workload, identify
from dray.manifests import Document, Source, expanded
from dray.manifests.jsontext import looks_like_json
from dray.sim.workloads import pods_of

DEFAULT_NAMESPACE = "default"
LONE_NODE = "node"
"""The name of the node that is assumed when nothing names any."""

Key = tuple[str, str, str]
"""Kind, namespace, name."""

Spot = str | Document
"""`file:line`, or a document without its value that can still find it."""

T = TypeVar("T")


class BundleError(InputError):
    """A cluster that cannot be read; every fault with its place."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


@dataclass(frozen=True, slots=True)
class Bundle:
    """A cluster in files; the remarks are what people should know of how it, and its nodes, were read."""

    nodes: tuple[Node, ...] = ()
    slices: tuple[ResourceSlice, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    templates: tuple[ResourceClaimTemplate, ...] = ()
    pods: tuple[Pod, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    classic_claims: tuple[ClassicClaim, ...] = ()
    rules: tuple[DeviceTaintRule, ...] = ()
    remarks: tuple[str, ...] = ()
    node_remarks: tuple[str, ...] = ()
    places: Mapping[Key, Spot] = field(default_factory=dict)

    def place(self, obj: Any) -> str:
        """Where an object stands, as `file:line`; empty for one that was made here."""
        spot = self.places.get((obj.kind, obj.metadata.namespace, obj.metadata.name))
        return "" if spot is None else _shown(spot)


def gather(documents: Iterable[Document], *, now: str) -> Bundle:
    """All objects of some documents as one cluster; raises `BundleError` with everything that is broken."""
    desk = _Desk(now)
    for document in documents:
        desk.take(document)
    if desk.problems:
        raise BundleError(desk.problems)
    slices = desk.of(ResourceSlice)
    nodes, said = _nodes(desk.of(Node), slices)
    return Bundle(
        nodes=nodes,
        slices=slices,
        classes=desk.of(DeviceClass),
        claims=desk.of(ResourceClaim),
        templates=desk.of(ResourceClaimTemplate),
        pods=desk.of(Pod),
        namespaces=desk.of(Namespace),
        classic_claims=desk.of(ClassicClaim),
        rules=desk.of(DeviceTaintRule),
        remarks=(*desk.remarks, *desk.set_aside()),
        node_remarks=tuple(said),
        places=desk.places,
    )


class _Desk:
    """Where documents are opened and sorted."""

    def __init__(self, now: str) -> None:
        self._now = now
        self._found: dict[type, list[Any]] = {}
        self._aside: Counter[str] = Counter()
        self._source: Source | None = None
        self._source_is_json = False
        self.places: dict[Key, Spot] = {}
        self.problems: list[str] = []
        self.remarks: list[str] = []

    def of(self, cls: type[T]) -> tuple[T, ...]:
        """The objects of one kind, in the order of the documents."""
        return tuple(self._found.get(cls, ()))

    def take(self, document: Document) -> None:
        """Sort everything in a document."""
        for twice in document.duplicates:
            place = f"{document.source.name}:{twice.again}"
            self.problems.append(f"{place}: `{twice.key}` stands here a second time; which one counts?")
        for item in expanded(document):
            self._take(item)

    def _take(self, item: Document) -> None:
        value = item.value
        if not isinstance(value, dict):
            self._broken(item, "", "expected an object with `apiVersion` and `kind`")
            return
        match identify(value):
            case Known(kind=kind):
                self._decode(item, kind)
            case Workload(template=way):
                self._make_pods(item, way)
            case complaint if complaint.rule == "not-checked":
                self._aside[str(value["kind"])] += 1
            case complaint:
                expected = f"; expected {complaint.expected}" if complaint.expected else ""
                self._broken(item, complaint.path, complaint.message + expected)

    def _decode(self, item: Document, kind: Kind) -> None:
        try:
            decoded = decode_document(item.value)
        except DecodeError as refused:
            for problem in refused.problems:
                self._broken(item, problem.path, str(problem))
            if not refused.problems:
                self._broken(item, "", str(refused))
            return
        for unknown in decoded.unknown:
            self.remarks.append(f"{_place(item, unknown.path)}: `{unknown.path}` is unknown and ignored")
        self._keep(item, decoded)

    def _keep(self, item: Document, decoded: Decoded) -> None:
        obj = decoded.object
        kind = decoded.kind
        if kind.namespaced and not obj.metadata.namespace:
            obj = in_namespace(obj, DEFAULT_NAMESPACE)
        obj = with_defaults(obj, now=self._now)
        name = obj.metadata.name or obj.metadata.generate_name
        # Claims of both groups share their names (C-51), so the group is not part of the key.
        key = (kind.name, obj.metadata.namespace, name)
        if name and key in self.places:
            first = _shown(self.places[key])
            self._broken(item, "metadata.name", f"{kind.name} `{name}` is here again, see {first}")
            return
        self.places[key] = replace(item, value=None) if self._is_json(item) else _place(item, "")
        self._found.setdefault(type(obj), []).append(obj)

    def _is_json(self, item: Document) -> bool:
        """Whether finding a place takes a second reading of the text; then it waits until somebody asks."""
        if item.source is not self._source:
            self._source, self._source_is_json = item.source, looks_like_json(item.source.text)
        return self._source_is_json

    def _make_pods(self, item: Document, way: str) -> None:
        """The pods that the template of a workload stands for."""
        made = pods_of(item.value, way, namespace=DEFAULT_NAMESPACE)
        kind = item.value["kind"]
        if not made:
            self._aside[kind] += 1
            return
        self.remarks.append(f"{_place(item, '')}: looked at {len(made)} of the pods that this {kind} makes")
        for document in made:
            try:
                pod = decode_document(document).object
            except DecodeError as refused:
                self._broken(item, way, str(refused))
                return
            key = ("Pod", pod.metadata.namespace, pod.metadata.name)
            if key not in self.places:
                self.places[key] = _place(item, way)
                self._found.setdefault(Pod, []).append(pod)

    def _broken(self, item: Document, path: str, message: str) -> None:
        self.problems.append(f"{_place(item, path)}: {message}")

    def set_aside(self) -> Iterator[str]:
        """What to say about objects that nothing here looks at."""
        if self._aside:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self._aside.items()))
            yield f"not looked at: {kinds}"
        classic = self._found.get(ClassicClaim, ())
        if classic:
            names = listed(f"{claim.metadata.namespace}/{claim.metadata.name}" for claim in classic)
            yield f"claims of `cdi.k8s.io` are allocated by their drivers, not here: {names}"


def in_namespace(obj: Any, namespace: str) -> Any:
    """An object moved into a namespace."""
    metadata = msgspec.structs.replace(obj.metadata, namespace=namespace)
    return msgspec.structs.replace(obj, metadata=metadata)


def listed(names: Iterable[str], most: int = 5) -> str:
    """Names in backticks; when there are many, the first ones and how many more."""
    every = list(names)
    shown = ", ".join(f"`{name}`" for name in every[:most])
    return f"{shown} and {len(every) - most} more" if len(every) > most else shown


def _shown(spot: Spot) -> str:
    return spot if isinstance(spot, str) else _place(spot, "")


def _place(item: Document, path: str) -> str:
    return f"{item.source.name}:{item.locate(path).line}"


def _nodes(given: tuple[Node, ...], slices: tuple[ResourceSlice, ...]) -> tuple[tuple[Node, ...], list[str]]:
    """The nodes by name; when none is given, those that slices name, and what to say about that."""
    named = sorted({name for published in slices for name in _names(published)})
    if given:
        known = {node.metadata.name for node in given}
        absent = [name for name in named if name not in known]
        said = [f"slices name nodes that are not given and not used: {listed(absent)}"] if absent else []
        return tuple(sorted(given, key=lambda node: node.metadata.name)), said
    if named:
        said = [f"no nodes given: took {len(named)} from the slices, without labels: {listed(named)}"]
        return tuple(_node(name) for name in named), said
    return (_node(LONE_NODE),), [
        f"no nodes given and no slice names one: assumed a single node `{LONE_NODE}`"
    ]


def _names(published: ResourceSlice) -> Iterator[str]:
    if published.spec.node_name:
        yield published.spec.node_name
    for device in published.spec.devices if published.spec.per_device_node_selection else ():
        if device.node_name:
            yield device.node_name


def _node(name: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, labels={"kubernetes.io/hostname": name}))
