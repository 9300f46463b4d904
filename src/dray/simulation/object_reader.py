"""Object reader: decodes documents, puts objects into namespaces, checks them, and sorts them by kind.

Theory of operation: each document is decoded, gets a namespace and a name, and is then checked as an API
server would check it, if its gates are given. What cannot be decoded, and duplicates, are problems of the
whole input; what a server would refuse is a problem of that object alone. Pods of workloads are created last:
a pod in the input comes before one from a template.

This module places nothing, and assumes nothing without a remark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from dray.api.classic import ClassicResourceClaim
from dray.api.codec import DecodedObject, decode_document
from dray.api.conversion import translate_path
from dray.api.core import Namespace, Pod
from dray.api.kinds import Kind
from dray.api.resource import ResourceClaim, ResourceClaimTemplate, ResourceSlice
from dray.api.strategies.create import CreateStrategyResult, apply_create_strategy, is_from_server
from dray.api.strategies.defaults import apply_defaults
from dray.api.strategies.gated_fields import FeatureGateFilter
from dray.api.unknown_fields import list_unknown_fields, mark_unknown_fields
from dray.claims.admin_access import (
    allows_admin_access,
    build_unlabelled_error,
    check_admin_results,
    find_admin_requests,
)
from dray.errors import DecodeError
from dray.lint.document_kind import KnownObject, WorkloadTemplate, identify
from dray.manifests import ManifestDocument, ManifestSource, expand_items
from dray.manifests.documents import join_path
from dray.manifests.json_reader import looks_like_json
from dray.simulation.invalid_objects import InvalidObject, ObjectProblem, format_dropped_fields, is_relevant
from dray.simulation.priority_classes import PriorityClasses, is_priority_class, read_class_name
from dray.simulation.workloads import build_pods

DEFAULT_NAMESPACE = "default"

Key = tuple[str, str, str]
"""Kind, namespace, name."""

Location = str | ManifestDocument
"""`file:line`, or a document without its value that can still find it."""

T = TypeVar("T")


class ObjectReader:
    """Reads documents one after the other and sorts their objects."""

    def __init__(self, now: str, gates: FeatureGateFilter | None) -> None:
        self._now = now
        self._gates = gates
        self._found: dict[type, list[Any]] = {}
        self._ignored_kinds: Counter[str] = Counter()
        self._workloads: list[tuple[ManifestDocument, str]] = []
        self._given: dict[Key, Any] = {}
        self._generated: Counter[Key] = Counter()
        self._priorities = PriorityClasses()
        self._priority_names: dict[Key, str] = {}
        self._source: ManifestSource | None = None
        self._source_is_json = False
        self.locations: dict[Key, Location] = {}
        self.problems: list[str] = []
        self.remarks: list[str] = []
        self.invalid: list[InvalidObject] = []
        self.warnings: list[str] = []

    def get_objects(self, cls: type[T]) -> tuple[T, ...]:
        """The objects of one kind, in the order of the documents."""
        return tuple(self._found.get(cls, ()))

    def read_document(self, document: ManifestDocument) -> None:
        """Sort everything in a document."""
        for twice in document.duplicates:
            place = f"{document.source.name}:{twice.second}"
            self.problems.append(f"{place}: `{twice.key}` stands here a second time; which one counts?")
        for item in expand_items(document):
            self._read_item(item)

    def _read_item(self, item: ManifestDocument) -> None:
        value = item.value
        if not isinstance(value, dict):
            self._add_problem(item, "", "expected an object with `apiVersion` and `kind`")
            return
        match identify(value):
            case KnownObject(kind=kind):
                self._decode(item, kind)
            case WorkloadTemplate(template=way):
                self._workloads.append((item, way))
            case complaint if complaint.rule == "not-checked" and is_priority_class(value):
                self._priorities.add(value)
            case complaint if complaint.rule == "not-checked":
                self._ignored_kinds[str(value["kind"])] += 1
            case complaint:
                expected = f"; expected {complaint.expected}" if complaint.expected else ""
                self._add_problem(item, complaint.path, complaint.message + expected)

    def _decode(self, item: ManifestDocument, kind: Kind) -> None:
        try:
            decoded = decode_document(item.value)
        except DecodeError as refused:
            for problem in refused.problems:
                self._add_problem(item, problem.path, str(problem))
            if not refused.problems:
                self._add_problem(item, "", str(refused))
            return
        marked = mark_unknown_fields(decoded.object, kind, decoded.unknown_fields)
        unusable = list_unknown_fields(marked)
        for unknown in decoded.unknown_fields:
            effect = (
                "unknown, so what has it is not used" if unknown.path in unusable else "unknown and ignored"
            )
            self.remarks.append(f"{_locate(item, unknown.path)}: `{unknown.path}` is {effect}")
        self._add_object(item, msgspec.structs.replace(decoded, object=marked))

    def _add_object(self, item: ManifestDocument, decoded: DecodedObject) -> None:
        obj = decoded.object
        kind = decoded.kind
        if kind.namespaced and not obj.metadata.namespace:
            obj = move_to_namespace(obj, DEFAULT_NAMESPACE)
        if not obj.metadata.name and obj.metadata.generate_name:
            obj = self._assign_name(item, kind, obj)
        # Claims of both groups share their names (C-51), so the group is not part of the key.
        key = (kind.name, obj.metadata.namespace, obj.metadata.name)
        if obj.metadata.name and key in self.locations:
            again = f"{kind.name} `{obj.metadata.name}` is here again"
            if self._given.get(key) == obj:
                first = format_location(self.locations[key])
                self.remarks.append(f"{_locate(item, '')}: {again}; what counts is the same as in {first}")
            else:
                self._add_problem(
                    item, "metadata.name", f"{again}, see {format_location(self.locations[key])}"
                )
            return
        self._given[key] = obj
        self.locations[key] = replace(item, value=None) if self._is_json(item) else _locate(item, "")
        if kind.name == "Pod":
            self._priority_names[key] = read_class_name(item.value)
        self._classify(_Origin(item, kind, decoded.version), obj)

    def _assign_name(self, item: ManifestDocument, kind: Kind, obj: Any) -> Any:
        """An object with a name in place of the one that a server would generate."""
        prefix = obj.metadata.generate_name
        self._generated[kind.name, obj.metadata.namespace, prefix] += 1
        name = f"{prefix}{self._generated[kind.name, obj.metadata.namespace, prefix]:05}"
        self.remarks.append(
            f"{_locate(item, '')}: this {kind.name} has no name yet and is called `{name}` here"
        )
        return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, name=name))

    def _classify(self, origin: _Origin, obj: Any) -> None:
        """Add an object to the cluster, or to the objects that a server would refuse."""
        if self._gates is None:
            judged = CreateStrategyResult(apply_defaults(obj, now=self._now))
            problems: tuple[ObjectProblem, ...] = ()
        else:
            stored = is_from_server(obj)
            judged = apply_create_strategy(origin.kind, obj, self._gates, now=self._now, stored=stored)
            problems = tuple(_find_problems(origin, judged, self._gates))
        obj = judged.object
        for line in (*format_dropped_fields(judged.dropped), *self._list_hidden_fields(origin, obj)):
            name = f"{obj.metadata.namespace}/{obj.metadata.name}".lstrip("/")
            self.warnings.append(
                f"{_locate(origin.item, origin.template_path)}: {origin.kind.name} {name}: {line}"
            )
        if problems:
            place = _locate(origin.item, origin.template_path)
            dropped = tuple(format_dropped_fields(judged.dropped))
            self.invalid.append(InvalidObject(origin.kind.name, obj, place, problems, dropped))
            if not self.invalid[-1].holds_devices:
                return
        self._found.setdefault(type(obj), []).append(obj)

    def _list_hidden_fields(self, origin: _Origin, obj: Any) -> Iterator[str]:
        """Fields of a slice that are kept for usage, and hide devices from new claims."""
        if isinstance(obj, ResourceSlice) and self._gates is not None:
            yield from format_dropped_fields(
                self._gates.drop_disabled_fields(origin.kind, obj, None).dropped, "not used"
            )

    def _is_json(self, item: ManifestDocument) -> bool:
        """Whether finding a location takes a second reading of the text, which is then deferred."""
        if item.source is not self._source:
            self._source, self._source_is_json = item.source, looks_like_json(item.source.text)
        return self._source_is_json

    def expand_workloads(self) -> None:
        """Create the pods of workloads, after all pods of the input."""
        for item, path in self._workloads:
            self._expand_workload(item, path)

    def _expand_workload(self, item: ManifestDocument, template_path: str) -> None:
        made = build_pods(item.value, template_path, namespace=DEFAULT_NAMESPACE)
        kind = item.value["kind"]
        if not made:
            self._ignored_kinds[kind] += 1
            return
        self.remarks.append(f"{_locate(item, '')}: looked at {len(made)} of the pods that this {kind} makes")
        for document in made:
            try:
                decoded = decode_document(document)
            except DecodeError as refused:
                self._add_problem(item, template_path, str(refused))
                return
            pod = decoded.object
            key = ("Pod", pod.metadata.namespace, pod.metadata.name)
            if key in self.locations:
                what = f"Pod `{pod.metadata.name}` of this {kind} is here itself"
                self.remarks.append(
                    f"{_locate(item, template_path)}: {what}, see {format_location(self.locations[key])}"
                )
                continue
            self.locations[key] = _locate(item, template_path)
            self._priority_names[key] = read_class_name(document)
            self._classify(_Origin(item, decoded.kind, decoded.version, template_path), pod)

    def resolve_priorities(self) -> None:
        """Give pods the number of their priority class."""
        names = self._priority_names
        self._found[Pod] = [
            self._priorities.resolve_priority(pod, names["Pod", pod.metadata.namespace, pod.metadata.name])
            for pod in self.get_objects(Pod)
        ]
        if self._priorities.missing:
            missing = format_names(self._priorities.missing)
            self.remarks.append(f"PriorityClass {missing} is not in the files; its pods count as priority 0")

    def check_admin_access(self) -> None:
        """Leave out objects with admin access in a known namespace that does not allow it."""
        allowed = {space.metadata.name: allows_admin_access(space) for space in self.get_objects(Namespace)}
        unknown: dict[str, None] = {}
        refused: set[int] = set()
        asking: list[ResourceClaimTemplate | ResourceClaim] = [
            *self.get_objects(ResourceClaimTemplate),
            *self.get_objects(ResourceClaim),
        ]
        for obj in asking:
            if self._gates is None or is_from_server(obj) or not any(find_admin_requests(obj)):
                continue
            space = obj.metadata.namespace
            if space not in allowed:
                unknown[space] = None
            elif not allowed[space]:
                place = format_location(self.locations[obj.kind, space, obj.metadata.name])
                errors = [build_unlabelled_error(field) for field in find_admin_requests(obj)]
                problems = tuple(ObjectProblem(place, error.path, error.body) for error in errors)
                self.invalid.append(InvalidObject(obj.kind, obj, place, problems))
                refused.add(id(obj))
        if refused:
            for cls in (ResourceClaimTemplate, ResourceClaim):
                self._found[cls] = [obj for obj in self.get_objects(cls) if id(obj) not in refused]
        if unknown:
            names = format_names(unknown)
            self.remarks.append(f"whether admin access is allowed in namespace {names} is not in the files")

    def _add_problem(self, item: ManifestDocument, path: str, message: str) -> None:
        self.problems.append(f"{_locate(item, path)}: {message}")

    def describe_ignored(self) -> Iterator[str]:
        """Remarks about ignored objects."""
        if self._ignored_kinds:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self._ignored_kinds.items()))
            yield f"not looked at: {kinds}"
        classic = self._found.get(ClassicResourceClaim, ())
        if classic:
            names = format_names(f"{claim.metadata.namespace}/{claim.metadata.name}" for claim in classic)
            yield f"claims of `cdi.k8s.io` are allocated by their drivers, not here: {names}"


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where an object was written: in which document, as which version, below which field of a workload."""

    item: ManifestDocument
    kind: Kind
    version: str
    template_path: str = ""

    def to_written_path(self, path: str) -> str:
        """A field of the internal form, as it was written."""
        return join_path(self.template_path, translate_path(self.kind, self.version, path))


def _find_problems(
    origin: _Origin, judged: CreateStrategyResult, gates: FeatureGateFilter
) -> Iterator[ObjectProblem]:
    """Why a server would refuse an object."""
    closed = gates.find_disabling_gate(origin.kind)
    if closed is not None:
        what = (
            f"`{origin.kind.format_api_version(origin.version)}` is not served: feature gate "
            f"`{closed}` is off"
        )
        yield ObjectProblem(_locate(origin.item, "apiVersion"), "apiVersion", what)
        return
    obj = judged.object
    unasked = check_admin_results(obj) if isinstance(obj, ResourceClaim) else ()
    for error in (*judged.errors, *unasked):
        if is_relevant(error, obj):
            path = origin.to_written_path(error.path)
            yield ObjectProblem(_locate(origin.item, path), path, error.body)


def move_to_namespace(obj: Any, namespace: str) -> Any:
    """An object moved into a namespace."""
    metadata = msgspec.structs.replace(obj.metadata, namespace=namespace)
    return msgspec.structs.replace(obj, metadata=metadata)


def format_names(names: Iterable[str], max_names: int = 5) -> str:
    """Names in backticks; when there are many, the first ones and how many more."""
    every = list(names)
    shown = ", ".join(f"`{name}`" for name in every[:max_names])
    return f"{shown} and {len(every) - max_names} more" if len(every) > max_names else shown


def format_location(location: Location) -> str:
    return location if isinstance(location, str) else _locate(location, "")


def _locate(item: ManifestDocument, path: str) -> str:
    return f"{item.source.name}:{item.locate(path).line}"
