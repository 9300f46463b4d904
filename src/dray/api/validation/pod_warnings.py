"""Warnings about pods and pod templates: what is deprecated, ignored or ambiguous in a valid pod.

Theory of operation: each check looks at one part of a pod's document and yields what a client should know;
`CHECKS` lists them with the fields they look at, because most pods have few of these. The document was
decoded before, so every value has the type of its field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from dray.api.core.pod import CONTAINER_LISTS
from dray.api.fields import ROOT, FieldPath
from dray.api.json_text import write_json
from dray.api.kinds import Kind
from dray.api.validation.deprecations import NODE_LABELS, POD_ANNOTATIONS, VOLUME_SOURCES
from dray.api.validation.pods.create import MAX_CACHED_SPEC_BYTES
from dray.api.validation.warnings import FieldWarning, FieldWarnings
from dray.values.cache_bounds import CacheBound
from dray.values.names import check_dns_label, check_label_value
from dray.values.quantity import NANOS_PER_UNIT, Quantity

Document: TypeAlias = Mapping[str, Any]

TEMPLATE_PATHS: Mapping[tuple[str, str], tuple[str, ...]] = MappingProxyType(
    {
        ("", "Pod"): (),
        ("", "PodTemplate"): ("template",),
        ("", "ReplicationController"): ("spec", "template"),
        ("apps", "DaemonSet"): ("spec", "template"),
        ("apps", "Deployment"): ("spec", "template"),
        ("apps", "ReplicaSet"): ("spec", "template"),
        ("apps", "StatefulSet"): ("spec", "template"),
        ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
        ("batch", "Job"): ("spec", "template"),
    }
)
"""Where the objects of a kind hold a pod: the object itself, or a template."""

SECCOMP_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"
APPARMOR_CONTAINER: Final = "container.apparmor.security.beta.kubernetes.io/"
_USE_SECCOMP: Final = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_USE_APPARMOR: Final = 'deprecated since v1.30; use the "appArmorProfile" field instead'
_NO_SELECTOR: Final = "a null labelSelector results in matching no pod"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_BYTE_RESOURCES: Final = ("memory", "ephemeral-storage")

SPEC_WARNINGS: Final = CacheBound("warnings about specs of pods", 256, "the process")
_spec_warnings: dict[bytes, tuple[FieldWarning, ...]] = {}


def collect_pod_warnings(kind: Kind, document: Document) -> list[FieldWarning]:
    """Return the warnings about the pod or the pod template of an object; kinds without one have none."""
    steps = TEMPLATE_PATHS.get((kind.group, kind.name))
    if steps is None:
        return []
    pod: Any = document
    for step in steps:
        pod = pod.get(step) or {}
    spec, annotations = pod.get("spec"), (pod.get("metadata") or {}).get("annotations") or {}
    if not spec:
        return []
    path = ROOT.child(*steps)
    warnings = list(_check_annotations(spec, annotations, path)) if annotations else []
    if not steps:
        warnings += _check_host_name(document)
        if not annotations:
            return [*warnings, *_collect_known_spec_warnings(spec)]
    return [*warnings, *_check_spec(spec, annotations, path)]


def _collect_known_spec_warnings(spec: Document) -> tuple[FieldWarning, ...]:
    """Return the warnings about the spec of a pod without annotations; most specs were seen before."""
    text = write_json(spec)
    known = _spec_warnings.get(text)
    if known is None:
        known = tuple(_check_spec(spec, {}, ROOT))
        if len(text) <= MAX_CACHED_SPEC_BYTES:
            SPEC_WARNINGS.put(_spec_warnings, text, known)
    return known


def _check_spec(spec: Document, annotations: Document, path: FieldPath) -> FieldWarnings:
    for fields, check in CHECKS:
        if not fields.isdisjoint(spec):
            yield from check(spec, annotations, path)


def _check_host_name(pod: Document) -> FieldWarnings:
    """Warn about a name that cannot be the host name of the pod as it is."""
    if check_dns_label((pod.get("metadata") or {}).get("name") or "a"):
        text = "the host name of the pod differs from its name: only a DNS label can be both"
        yield _warn(ROOT.child("metadata", "name"), text)


def _check_node_labels(spec: Document, annotations: Document, path: FieldPath) -> FieldWarnings:
    for label in spec.get("nodeSelector") or ():
        if label in NODE_LABELS:
            yield _warn(path.child("spec", "nodeSelector").key(label), NODE_LABELS[label])
    affinity = (spec.get("affinity") or {}).get("nodeAffinity")
    if not affinity:
        return
    place = path.child("spec", "affinity", "nodeAffinity")
    terms = (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()
    for position, term in enumerate(terms):
        yield from _check_term(term, place.child(_REQUIRED, "nodeSelectorTerms").index(position))
    for position, preferred in enumerate(affinity.get(_PREFERRED) or ()):
        term = preferred.get("preference") or {}
        where = place.child(_PREFERRED).index(position).child("preference")
        yield from _check_term(term, where)
        yield from _check_preferred_values(term, where)


def _check_term(term: Document, path: FieldPath) -> FieldWarnings:
    for position, expression in enumerate(term.get("matchExpressions") or ()):
        key = expression.get("key", "")
        if key in NODE_LABELS:
            place = path.child("matchExpressions").index(position).child("key")
            yield _warn(place, f"{key} is {NODE_LABELS[key]}")


def _check_preferred_values(term: Document, path: FieldPath) -> FieldWarnings:
    for position, expression in enumerate(term.get("matchExpressions") or ()):
        for number, value in enumerate(expression.get("values") or ()):
            place = path.child("matchExpressions").index(position).child("values").index(number)
            for fault in check_label_value(value):
                yield _warn(place, f"{value} is invalid, {fault.text}")


def _check_topology(spec: Document, annotations: Document, path: FieldPath) -> FieldWarnings:
    for position, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        place = path.child("spec", "topologySpreadConstraints").index(position)
        key = constraint.get("topologyKey", "")
        if key in NODE_LABELS:
            yield _warn(place.child("topologyKey"), f"{key} is {NODE_LABELS[key]}")
        if constraint.get("labelSelector") is None:
            yield _warn(place.child("labelSelector"), _NO_SELECTOR)


def _check_pod_affinity(spec: Document, annotations: Document, path: FieldPath) -> FieldWarnings:
    affinity = spec.get("affinity") or {}
    for name in ("podAffinity", "podAntiAffinity"):
        terms, place = affinity.get(name) or {}, path.child("spec", "affinity", name)
        for position, term in enumerate(terms.get(_REQUIRED) or ()):
            if term.get("labelSelector") is None:
                yield _warn(place.child(_REQUIRED).index(position).child("labelSelector"), _NO_SELECTOR)
        for position, weighted in enumerate(terms.get(_PREFERRED) or ()):
            if (weighted.get("podAffinityTerm") or {}).get("labelSelector") is None:
                where = place.child(_PREFERRED).index(position).child("podAffinityTerm", "labelSelector")
                yield _warn(where, _NO_SELECTOR)


def _check_annotations(spec: Document, annotations: Document, path: FieldPath) -> FieldWarnings:
    place = path.child("metadata", "annotations")
    for name, text in POD_ANNOTATIONS.items():
        if name in annotations:
            yield _warn(place.key(name), text)
    if SECCOMP_POD in annotations and not (spec.get("securityContext") or {}).get("seccompProfile"):
        yield _warn(place.key(SECCOMP_POD), _USE_SECCOMP)
    for _, container in _iterate_containers(spec, path):
        context = container.get("securityContext") or {}
        for prefix, field, text in (
            (SECCOMP_CONTAINER, "seccompProfile", _USE_SECCOMP),
            (APPARMOR_CONTAINER, "appArmorProfile", _USE_APPARMOR),
        ):
            name = prefix + container.get("name", "")
            if name in annotations and not context.get(field):
                yield _warn(place.key(name), text)


def _check_volumes(spec: Document, annotations: Document, path: FieldPath) -> FieldWarnings:
    for position, volume in enumerate(spec.get("volumes") or ()):
        for source in volume:
            if source in VOLUME_SOURCES:
                place = path.child("spec", "volumes").index(position).child(source)
                yield _warn(place, VOLUME_SOURCES[source])


def _check_repeated_entries(spec: Document, annotations: Document, path: FieldPath) -> FieldWarnings:
    for name, key in (("hostAliases", "ip"), ("imagePullSecrets", "name")):
        seen: set[str] = set()
        for position, entry in enumerate(spec.get(name) or ()):
            value, place = entry.get(key, ""), path.child("spec", name).index(position).child(key)
            if value in seen:
                yield _warn(place, f'duplicate {key} "{value}"')
            elif not value and name == "imagePullSecrets":
                yield _warn(place, 'invalid empty name ""')
            seen.add(value)


def _check_overhead(spec: Document, annotations: Document, path: FieldPath) -> FieldWarnings:
    return _check_fractions(spec.get("overhead"), path.child("spec", "overhead"))


def _check_containers(spec: Document, annotations: Document, path: FieldPath) -> FieldWarnings:
    for place, container in _iterate_containers(spec, path):
        resources, environment = container.get("resources"), container.get("env")
        if resources:
            for field in ("limits", "requests"):
                yield from _check_fractions(resources.get(field), place.child("resources", field))
        if environment and len(environment) > 1:
            yield from _check_environment(environment, place.child("env"))


def _check_fractions(amounts: Document | None, path: FieldPath) -> FieldWarnings:
    for resource in _BYTE_RESOURCES if amounts else ():
        amount = (amounts or {}).get(resource)
        # Only these suffixes are smaller than one.
        if isinstance(amount, str) and amount[-1:] in "mnu" and Quantity.parse(amount).nanos % NANOS_PER_UNIT:
            text = f'fractional byte value "{amount}" is invalid, must be an integer'
            yield _warn(path.key(resource), text)


def _check_environment(variables: Sequence[Document], path: FieldPath) -> FieldWarnings:
    seen: set[str] = set()
    for position, variable in enumerate(variables):
        name, value = variable.get("name", ""), variable.get("value", "")
        reference = f"$({name})"
        extends = reference in value and value != reference and not variable.get("valueFrom")
        if name in seen and not extends:
            text = f'hides previous definition of "{name}", which may be dropped when using apply'
            yield _warn(path.index(position), text)
        seen.add(name)


def _check_ports(spec: Document, annotations: Document, path: FieldPath) -> FieldWarnings:
    ports = list(_iterate_ports(spec, path))
    names: dict[str, FieldPath] = {}
    for number, (place, port) in enumerate(ports):
        if port.get("hostIP") and not port.get("hostPort"):
            yield _warn(place, "hostIP set without hostPort")
        for other_place, other in ports[:number]:
            relation = _relate_ports(port, other)
            if relation:
                yield _warn(place, f"{relation} port definition with {other_place}")
        name = port.get("name")
        if name and name in names:
            text = (
                f'duplicate port name "{name}" with {names[name]}, services and probes that select ports by '
                f"name will use {names[name]}"
            )
            yield _warn(place, text)
        elif name:
            names[name] = place


def _relate_ports(port: Document, other: Document) -> str:
    """Say how a port collides with another one; empty when it does not."""
    if any(port.get(field, default) != other.get(field, default) for field, default in _PORT_KEY):
        return ""
    address, other_address = port.get("hostIP", ""), other.get("hostIP", "")
    number, other_number = port.get("hostPort", 0), other.get("hostPort", 0)
    if address == other_address and number == other_number:
        return "duplicate"
    if not number or not other_number:
        return "overlapping"
    return "dangerously ambiguous" if number == other_number and not (address and other_address) else ""


_PORT_KEY: Final = (("containerPort", 0), ("protocol", "TCP"))


def _check_grace_period(spec: Document, annotations: Document, path: FieldPath) -> FieldWarnings:
    seconds = spec.get("terminationGracePeriodSeconds")
    if seconds is not None and seconds < 0:
        text = "must be >= 0; negative values are invalid and will be treated as 1"
        yield _warn(path.child("spec", "terminationGracePeriodSeconds"), text)


def _iterate_containers(spec: Document, path: FieldPath) -> Iterator[tuple[FieldPath, Document]]:
    for name in CONTAINER_LISTS:
        for position, container in enumerate(spec.get(name) or ()):
            yield path.child("spec", name).index(position), container


def _iterate_ports(spec: Document, path: FieldPath) -> Iterable[tuple[FieldPath, Document]]:
    for place, container in _iterate_containers(spec, path):
        for position, port in enumerate(container.get("ports") or ()):
            yield place.child("ports").index(position), port


def _warn(path: FieldPath, text: str) -> FieldWarning:
    return FieldWarning(str(path), text)


PodCheck: TypeAlias = Callable[[Document, Document, FieldPath], FieldWarnings]
CHECKS: Final[tuple[tuple[frozenset[str], PodCheck], ...]] = (
    (frozenset({"nodeSelector", "affinity"}), _check_node_labels),
    (frozenset({"topologySpreadConstraints"}), _check_topology),
    (frozenset({"volumes"}), _check_volumes),
    (frozenset({"hostAliases", "imagePullSecrets"}), _check_repeated_entries),
    (frozenset({"overhead"}), _check_overhead),
    (frozenset(CONTAINER_LISTS), _check_containers),
    (frozenset(CONTAINER_LISTS), _check_ports),
    (frozenset({"terminationGracePeriodSeconds"}), _check_grace_period),
    (frozenset({"affinity"}), _check_pod_affinity),
)
"""Checks, and the fields of a pod's spec of which it needs one to be worth the look."""
