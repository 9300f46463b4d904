"""Bundle: a cluster in files, as objects.

Theory of operation: documents come as `dray.manifests` reads them (plain manifests, folders, lists, the
output of `kubectl get -o yaml`). Each is decoded, put into a namespace and defaulted, as an API server would
do. Documents that cannot be decoded, and duplicates, are errors of the whole input: an incomplete cluster
gives wrong answers, so all of them are reported and nothing is answered. With the gates of a server, objects
are checked as it would check them: what it would drop is dropped with a remark, what it would refuse is left
out and kept as `invalid`. Objects of other kinds are ignored with a remark.

This module places nothing, and assumes nothing without a remark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Namespace, Node, Pod
from dray.api.meta import ObjectMeta
from dray.api.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dray.api.strategies.gated_fields import FeatureGateFilter
from dray.errors import InputError
from dray.manifests import ManifestDocument
from dray.simulation.invalid_objects import InvalidObject, filter_usable_slices, hold_whole_devices
from dray.simulation.object_reader import Key, Location, ObjectReader, format_location, format_names

ASSUMED_NODE_NAME = "node"
"""The name of the node that is assumed when neither nodes nor slices name one."""


class BundleError(InputError):
    """A cluster that cannot be read; every error with its location."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


@dataclass(frozen=True, slots=True)
class Bundle:
    """A cluster in files; the remarks tell how it, and its nodes, were read.

    `warnings` are those a server would send with objects it accepts. What is `invalid` is in none of the
    other lists, except for claims with devices: those stay in use.
    """

    nodes: tuple[Node, ...] = ()
    slices: tuple[ResourceSlice, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    templates: tuple[ResourceClaimTemplate, ...] = ()
    pods: tuple[Pod, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    classic_claims: tuple[ClassicResourceClaim, ...] = ()
    rules: tuple[DeviceTaintRule, ...] = ()
    remarks: tuple[str, ...] = ()
    node_remarks: tuple[str, ...] = ()
    locations: Mapping[Key, Location] = field(default_factory=dict)
    invalid: tuple[InvalidObject, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def holders(self) -> tuple[ResourceClaim, ...]:
        """The claims as they count for usage."""
        doubted = {id(each.object) for each in self.invalid if each.holds_whole}
        return tuple(hold_whole_devices(claim) if id(claim) in doubted else claim for claim in self.claims)

    def find_location(self, obj: Any) -> str:
        """The location of an object, as `file:line`; empty for one that was created here."""
        location = self.locations.get((obj.kind, obj.metadata.namespace, obj.metadata.name))
        return "" if location is None else format_location(location)


def build_bundle(
    documents: Iterable[ManifestDocument], *, now: str, gates: FeatureGateFilter | None = None
) -> Bundle:
    """Build one cluster from documents; raises `BundleError` with every error.

    With the gates of a server objects are checked as it would; without, they are only defaulted.
    """
    reader = ObjectReader(now, gates)
    for document in documents:
        reader.read_document(document)
    reader.expand_workloads()
    reader.resolve_priorities()
    reader.check_admin_access()
    if reader.problems:
        raise BundleError(reader.problems)
    claims = reader.get_objects(ResourceClaim)
    slices, lost = filter_usable_slices(reader.get_objects(ResourceSlice), reader.invalid, claims)
    nodes, remarks = _resolve_nodes(
        reader.get_objects(Node), slices, any(each.kind == "Node" for each in reader.invalid)
    )
    return Bundle(
        nodes=nodes,
        slices=slices,
        classes=reader.get_objects(DeviceClass),
        claims=claims,
        templates=reader.get_objects(ResourceClaimTemplate),
        pods=reader.get_objects(Pod),
        namespaces=reader.get_objects(Namespace),
        classic_claims=reader.get_objects(ClassicResourceClaim),
        rules=reader.get_objects(DeviceTaintRule),
        remarks=(*reader.remarks, *lost, *reader.describe_ignored()),
        node_remarks=tuple(remarks),
        locations=reader.locations,
        invalid=tuple(reader.invalid),
        warnings=tuple(reader.warnings),
    )


def _resolve_nodes(
    given: tuple[Node, ...], slices: tuple[ResourceSlice, ...], invalid: bool
) -> tuple[tuple[Node, ...], list[str]]:
    """The nodes by name; when none is given, those that slices name, and what to say about that."""
    if invalid and not given:
        return (), ["no node is left: all that are given are invalid"]
    named = _list_named_nodes(slices)
    if given:
        known = {node.metadata.name for node in given}
        absent = [name for name in named if name not in known]
        remarks = (
            [f"slices name nodes that are not given and not used: {format_names(absent)}"] if absent else []
        )
        return tuple(sorted(given, key=lambda node: node.metadata.name)), remarks
    if named:
        remarks = [
            f"no nodes given: took {len(named)} from the slices, without labels: {format_names(named)}"
        ]
        return tuple(_build_node(name) for name in named), remarks
    return (_build_node(ASSUMED_NODE_NAME),), [
        f"no nodes given and no slice names one: assumed a single node `{ASSUMED_NODE_NAME}`"
    ]


def name_nodes_of_slices(slices: Iterable[ResourceSlice]) -> tuple[Node, ...]:
    """The nodes that slices name, as far as slices know them: without labels, taints and resources."""
    return tuple(_build_node(name) for name in _list_named_nodes(slices))


def _list_named_nodes(slices: Iterable[ResourceSlice]) -> list[str]:
    return sorted({name for published in slices for name in _list_node_names(published)})


def _list_node_names(published: ResourceSlice) -> Iterator[str]:
    if published.spec.node_name:
        yield published.spec.node_name
    for device in published.spec.devices if published.spec.per_device_node_selection else ():
        if device.node_name:
            yield device.node_name


def _build_node(name: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, labels={"kubernetes.io/hostname": name}))
