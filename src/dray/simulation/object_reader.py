"""Objects of documents: decoded, put into a namespace, judged, and sorted by kind.

Theory of operation: each document is decoded, gets a namespace and a name, and is then judged as an API
server would judge it, when the gates of one are given. What cannot be decoded, and what is there twice, is a
problem of the whole input; what a server would refuse is a problem of that object alone. Pods of workloads
are made last: a pod that is there itself comes before one that a template only stands for.

Rules for this file: nothing is placed here, and nothing is made up without a remark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from dray.api.classic import ClassicClaim
from dray.api.codec import Decoded, decode_document
from dray.api.conversion import place_in
from dray.api.core import Namespace, Pod
from dray.api.kinds import Kind
from dray.api.resource import ResourceClaim, ResourceClaimTemplate, ResourceSlice
from dray.api.strategies.create import Judged, is_from_server, judge
from dray.api.strategies.defaults import with_defaults
from dray.api.strategies.gated_fields import Gatekeeper
from dray.claims.admin_access import asking_fields, forbid_unasked, forbid_unlabelled, is_labelled
from dray.errors import DecodeError
from dray.lint.document_kind import Known, Workload, identify
from dray.manifests import Document, Source, expanded
from dray.manifests.documents import below
from dray.manifests.json_reader import looks_like_json
from dray.simulation.invalid_objects import InvalidObject, Problem, counts, drop_lines
from dray.simulation.priority_classes import PriorityClasses, class_name_of, is_priority_class
from dray.simulation.workloads import pods_of

DEFAULT_NAMESPACE = "default"

Key = tuple[str, str, str]
"""Kind, namespace, name."""

Spot = str | Document
"""`file:line`, or a document without its value that can still find it."""

T = TypeVar("T")


class ObjectReader:
    """Reads documents one after the other and sorts what is in them."""

    def __init__(self, now: str, gates: Gatekeeper | None) -> None:
        self._now = now
        self._gates = gates
        self._found: dict[type, list[Any]] = {}
        self._aside: Counter[str] = Counter()
        self._workloads: list[tuple[Document, str]] = []
        self._given: dict[Key, Any] = {}
        self._generated: Counter[Key] = Counter()
        self._priorities = PriorityClasses()
        self._priority_names: dict[Key, str] = {}
        self._source: Source | None = None
        self._source_is_json = False
        self.places: dict[Key, Spot] = {}
        self.problems: list[str] = []
        self.remarks: list[str] = []
        self.invalid: list[InvalidObject] = []
        self.warnings: list[str] = []

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
                self._workloads.append((item, way))
            case complaint if complaint.rule == "not-checked" and is_priority_class(value):
                self._priorities.add(value)
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
        if not obj.metadata.name and obj.metadata.generate_name:
            obj = self._named(item, kind, obj)
        # Claims of both groups share their names (C-51), so the group is not part of the key.
        key = (kind.name, obj.metadata.namespace, obj.metadata.name)
        if obj.metadata.name and key in self.places:
            again = f"{kind.name} `{obj.metadata.name}` is here again"
            if self._given.get(key) == obj:
                first = shown(self.places[key])
                self.remarks.append(f"{_place(item, '')}: {again}; what counts is the same as in {first}")
            else:
                self._broken(item, "metadata.name", f"{again}, see {shown(self.places[key])}")
            return
        self._given[key] = obj
        self.places[key] = replace(item, value=None) if self._is_json(item) else _place(item, "")
        if kind.name == "Pod":
            self._priority_names[key] = class_name_of(item.value)
        self._sort(_Origin(item, kind, decoded.version), obj)

    def _named(self, item: Document, kind: Kind, obj: Any) -> Any:
        """An object with a name instead of the one that a server would make up."""
        prefix = obj.metadata.generate_name
        self._generated[kind.name, obj.metadata.namespace, prefix] += 1
        name = f"{prefix}{self._generated[kind.name, obj.metadata.namespace, prefix]:05}"
        self.remarks.append(
            f"{_place(item, '')}: this {kind.name} has no name yet and is called `{name}` here"
        )
        return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, name=name))

    def _sort(self, origin: _Origin, obj: Any) -> None:
        """Put an object where it belongs: into the cluster, or among what a server would refuse."""
        if self._gates is None:
            judged = Judged(with_defaults(obj, now=self._now))
            problems: tuple[Problem, ...] = ()
        else:
            stored = is_from_server(obj)
            judged = judge(origin.kind, obj, self._gates, now=self._now, stored=stored)
            problems = tuple(_problems(origin, judged, self._gates))
        obj = judged.object
        for line in (*drop_lines(judged.dropped), *self._hidden(origin, obj)):
            name = f"{obj.metadata.namespace}/{obj.metadata.name}".lstrip("/")
            self.warnings.append(f"{_place(origin.item, origin.way)}: {origin.kind.name} {name}: {line}")
        if problems:
            place = _place(origin.item, origin.way)
            dropped = tuple(drop_lines(judged.dropped))
            self.invalid.append(InvalidObject(origin.kind.name, obj, place, problems, dropped))
            if not self.invalid[-1].holds:
                return
        self._found.setdefault(type(obj), []).append(obj)

    def _hidden(self, origin: _Origin, obj: Any) -> Iterator[str]:
        """Fields of a slice that stay for the accounts, and hide devices from new claims."""
        if isinstance(obj, ResourceSlice) and self._gates is not None:
            yield from drop_lines(self._gates.admitted(origin.kind, obj, None).dropped, "not used")

    def _is_json(self, item: Document) -> bool:
        """Whether finding a place takes a second reading of the text; then it waits until somebody asks."""
        if item.source is not self._source:
            self._source, self._source_is_json = item.source, looks_like_json(item.source.text)
        return self._source_is_json

    def make_pods(self) -> None:
        """The pods that the templates of workloads stand for, after all pods that are there themselves."""
        for item, way in self._workloads:
            self._make_pods(item, way)

    def _make_pods(self, item: Document, way: str) -> None:
        made = pods_of(item.value, way, namespace=DEFAULT_NAMESPACE)
        kind = item.value["kind"]
        if not made:
            self._aside[kind] += 1
            return
        self.remarks.append(f"{_place(item, '')}: looked at {len(made)} of the pods that this {kind} makes")
        for document in made:
            try:
                decoded = decode_document(document)
            except DecodeError as refused:
                self._broken(item, way, str(refused))
                return
            pod = decoded.object
            key = ("Pod", pod.metadata.namespace, pod.metadata.name)
            if key in self.places:
                what = f"Pod `{pod.metadata.name}` of this {kind} is here itself"
                self.remarks.append(f"{_place(item, way)}: {what}, see {shown(self.places[key])}")
                continue
            self.places[key] = _place(item, way)
            self._priority_names[key] = class_name_of(document)
            self._sort(_Origin(item, decoded.kind, decoded.version, way), pod)

    def settle_priorities(self) -> None:
        """Give pods the number of their priority class."""
        names = self._priority_names
        self._found[Pod] = [
            self._priorities.settle(pod, names["Pod", pod.metadata.namespace, pod.metadata.name])
            for pod in self.of(Pod)
        ]
        if self._priorities.missing:
            missing = listed(self._priorities.missing)
            self.remarks.append(f"PriorityClass {missing} is not in the files; its pods count as priority 0")

    def check_admin_access(self) -> None:
        """Leave out what asks for admin access in a namespace that is there and does not allow it."""
        allowed = {space.metadata.name: is_labelled(space) for space in self.of(Namespace)}
        unknown: dict[str, None] = {}
        refused: set[int] = set()
        asking: list[ResourceClaimTemplate | ResourceClaim] = [
            *self.of(ResourceClaimTemplate),
            *self.of(ResourceClaim),
        ]
        for obj in asking:
            if self._gates is None or is_from_server(obj) or not any(asking_fields(obj)):
                continue
            space = obj.metadata.namespace
            if space not in allowed:
                unknown[space] = None
            elif not allowed[space]:
                place = shown(self.places[obj.kind, space, obj.metadata.name])
                errors = [forbid_unlabelled(field) for field in asking_fields(obj)]
                problems = tuple(Problem(place, error.path, error.body) for error in errors)
                self.invalid.append(InvalidObject(obj.kind, obj, place, problems))
                refused.add(id(obj))
        if refused:
            for cls in (ResourceClaimTemplate, ResourceClaim):
                self._found[cls] = [obj for obj in self.of(cls) if id(obj) not in refused]
        if unknown:
            names = listed(unknown)
            self.remarks.append(f"whether admin access is allowed in namespace {names} is not in the files")

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


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where an object was written: in which document, as which version, below which field of a workload."""

    item: Document
    kind: Kind
    version: str
    way: str = ""

    def written(self, path: str) -> str:
        """A field of the internal form, as it was written."""
        return below(self.way, place_in(self.kind, self.version, path))


def _problems(origin: _Origin, judged: Judged, gates: Gatekeeper) -> Iterator[Problem]:
    """Why a server would refuse an object."""
    closed = gates.closed(origin.kind)
    if closed is not None:
        what = f"`{origin.kind.api_version(origin.version)}` is not served: feature gate `{closed}` is off"
        yield Problem(_place(origin.item, "apiVersion"), "apiVersion", what)
        return
    obj = judged.object
    unasked = forbid_unasked(obj) if isinstance(obj, ResourceClaim) else ()
    for error in (*judged.errors, *unasked):
        if counts(error, obj):
            path = origin.written(error.path)
            yield Problem(_place(origin.item, path), path, error.body)


def in_namespace(obj: Any, namespace: str) -> Any:
    """An object moved into a namespace."""
    metadata = msgspec.structs.replace(obj.metadata, namespace=namespace)
    return msgspec.structs.replace(obj, metadata=metadata)


def listed(names: Iterable[str], most: int = 5) -> str:
    """Names in backticks; when there are many, the first ones and how many more."""
    every = list(names)
    shown = ", ".join(f"`{name}`" for name in every[:most])
    return f"{shown} and {len(every) - most} more" if len(every) > most else shown


def shown(spot: Spot) -> str:
    return spot if isinstance(spot, str) else _place(spot, "")


def _place(item: Document, path: str) -> str:
    return f"{item.source.name}:{item.locate(path).line}"
