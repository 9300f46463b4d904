"""A bundle: a cluster in files, as objects.

Theory of operation: documents come in as `dray.manifests` reads them (plain manifests, folders, lists, what
`kubectl get -o yaml` prints). Each is decoded, put into a namespace and given its defaults, as an API server
would do. What cannot be decoded, and what stands there twice, is broken input: a cluster with holes gives
wrong answers, so all of it is named and nothing is answered. With the gates of a server given, objects are
judged as it would judge them: what it would drop is dropped and said, what it would refuse is left out and
kept as `invalid`. What is merely not ours is set aside and said.

Rules for this file: nothing is placed here, and nothing is made up without a remark.
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
"""The name of the node that is assumed when nothing names any."""


class BundleError(InputError):
    """A cluster that cannot be read; every fault with its place."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


@dataclass(frozen=True, slots=True)
class Bundle:
    """A cluster in files; the remarks are what people should know of how it, and its nodes, were read.

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
        """The claims as what they hold counts."""
        doubted = {id(each.object) for each in self.invalid if each.holds_whole}
        return tuple(hold_whole_devices(claim) if id(claim) in doubted else claim for claim in self.claims)

    def find_location(self, obj: Any) -> str:
        """Where an object stands, as `file:line`; empty for one that was made here."""
        spot = self.locations.get((obj.kind, obj.metadata.namespace, obj.metadata.name))
        return "" if spot is None else format_location(spot)


def build_bundle(
    documents: Iterable[ManifestDocument], *, now: str, gates: FeatureGateFilter | None = None
) -> Bundle:
    """All objects of some documents as one cluster; raises `BundleError` with everything that is broken.

    With the gates of a server objects are judged as it would; without, they get their defaults and no more.
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
    nodes, said = _resolve_nodes(
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
        node_remarks=tuple(said),
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
    named = sorted({name for published in slices for name in _list_node_names(published)})
    if given:
        known = {node.metadata.name for node in given}
        absent = [name for name in named if name not in known]
        said = (
            [f"slices name nodes that are not given and not used: {format_names(absent)}"] if absent else []
        )
        return tuple(sorted(given, key=lambda node: node.metadata.name)), said
    if named:
        said = [f"no nodes given: took {len(named)} from the slices, without labels: {format_names(named)}"]
        return tuple(_build_node(name) for name in named), said
    return (_build_node(ASSUMED_NODE_NAME),), [
        f"no nodes given and no slice names one: assumed a single node `{ASSUMED_NODE_NAME}`"
    ]


def _list_node_names(published: ResourceSlice) -> Iterator[str]:
    if published.spec.node_name:
        yield published.spec.node_name
    for device in published.spec.devices if published.spec.per_device_node_selection else ():
        if device.node_name:
            yield device.node_name


def _build_node(name: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, labels={"kubernetes.io/hostname": name}))
