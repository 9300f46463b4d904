"""Checks across objects: references to missing objects, duplicate names, contradictions within a pool.

Theory of operation: `crosscheck` reads only `ObjectFacts`. It sorts them into an index once, and each check
of `CHECKS` reads the index and yields findings. A reference to an object that is not among the manifests is
reported only when the manifests define objects of that kind at all: a lone claim may well rely on classes of
its cluster. `complete` says that the manifests are all there is; then such a reference is an error. `place`
names what was searched, for messages. The package `selectors` has the checks of selectors against devices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from dray.lint.findings import THESE_MANIFESTS, DeferredFinding, FieldFinding
from dray.lint.object_facts import ClassUse, ObjectFacts, PodClaimUse
from dray.lint.rules import Severity
from dray.lint.selectors.checks import SelectorCheckInput, check_selectors
from dray.lint.suggestions import format_choices, suggest_name

_DEVICES, _CLASSIC = "resource.k8s.io", "cdi.k8s.io"
_Name = tuple[str, str]
_Key = tuple[str, str]
_CLAIM: Final = "ResourceClaim"


@dataclass(frozen=True, slots=True)
class _ObjectIndex:
    """Facts by kind, then namespace and name."""

    objects: dict[_Key, dict[_Name, list[ObjectFacts]]] = field(default_factory=lambda: defaultdict(dict))
    pods: list[ObjectFacts] = field(default_factory=list)
    using_classes: list[ObjectFacts] = field(default_factory=list)
    using_selectors: list[ObjectFacts] = field(default_factory=list)
    pools: dict[_Name, list[ObjectFacts]] = field(default_factory=lambda: defaultdict(list))
    complete: bool = False
    place: str = THESE_MANIFESTS

    def get_objects(self, group: str, kind: str) -> dict[_Name, list[ObjectFacts]]:
        return self.objects.get((group, kind), {})

    def get_severity(self) -> Severity:
        """The severity of a reference to a missing object."""
        return Severity.ERROR if self.complete else Severity.WARNING


def crosscheck(
    facts: Iterable[ObjectFacts], *, complete: bool = False, place: str = THESE_MANIFESTS
) -> list[DeferredFinding]:
    """All findings that need more than one object."""
    index = _ObjectIndex(complete=complete, place=place)
    for one in facts:
        if one.name:
            same_kind = index.objects[one.group, one.kind]
            same_kind.setdefault((one.namespace, one.name), []).append(one)
        if one.kind == "Pod":
            index.pods.append(one)
        if one.device_classes or one.classic_classes:
            index.using_classes.append(one)
        if any(group.selectors for group in one.selector_groups):
            index.using_selectors.append(one)
        if one.slice is not None:
            index.pools[one.slice.driver, one.slice.pool].append(one)
    return [finding for check in CHECKS for finding in check(index)]


# --- names ---


def _check_duplicate_objects(index: _ObjectIndex) -> Iterator[DeferredFinding]:
    for named in index.objects.values():
        for facts in named.values():
            for again in facts[1:]:
                message = f"{facts[0].location.subject} is defined twice; only the last one applied stays"
                finding = FieldFinding(
                    "duplicate-object",
                    "metadata.name",
                    message,
                    expected="one object of this kind, namespace and name",
                    severity=index.get_severity(),
                )
                yield DeferredFinding(again.location, finding, (facts[0].location, "metadata.name"))


def _check_claims_in_both_groups(index: _ObjectIndex) -> Iterator[DeferredFinding]:
    devices, classic = index.get_objects(_DEVICES, _CLAIM), index.get_objects(_CLASSIC, _CLAIM)
    for name in devices.keys() & classic.keys():
        finding = FieldFinding(
            "claim-in-both-groups",
            "metadata.name",
            f"a claim called `{name[1]}` exists in `{_DEVICES}` too; a pod that names it could mean either",
            expected="names that are unique across both groups",
        )
        yield DeferredFinding(
            classic[name][0].location, finding, (devices[name][0].location, "metadata.name")
        )


# --- references ---


def _check_classes(index: _ObjectIndex) -> Iterator[DeferredFinding]:
    for fact in index.using_classes:
        yield from _report_missing_classes(index, fact, fact.device_classes, (_DEVICES, "DeviceClass"))
        yield from _report_missing_classes(index, fact, fact.classic_classes, (_CLASSIC, "ResourceClass"))


def _report_missing_classes(
    index: _ObjectIndex, fact: ObjectFacts, uses: tuple[ClassUse, ...], kind: _Key
) -> Iterator[DeferredFinding]:
    known = {name for _, name in index.get_objects(*kind)}
    if not known and not index.complete:
        return
    for use in uses:
        if use.name not in known:
            finding = FieldFinding(
                "unknown-class",
                use.path,
                f"{kind[1]} `{use.name}` is not {index.place}",
                expected=format_choices(known, f"a {kind[1]}"),
                hint=suggest_name(use.name, known),
                severity=index.get_severity(),
            )
            yield DeferredFinding(fact.location, finding)


def _check_claims(index: _ObjectIndex) -> Iterator[DeferredFinding]:
    claims = {**index.get_objects(_CLASSIC, _CLAIM), **index.get_objects(_DEVICES, _CLAIM)}
    templates = index.get_objects(_DEVICES, "ResourceClaimTemplate")
    for pod in index.pods:
        requests: dict[str, tuple[str, ...]] = {}
        for entry in pod.claim_uses:
            name = entry.claim if entry.claim is not None else entry.template
            if not name:
                continue
            known = claims if entry.claim is not None else templates
            found = known.get((pod.namespace, name))
            if found is None:
                yield from _report_missing_claim(index, pod, entry, known.keys())
            else:
                requests[entry.name] = found[0].requests
        yield from _check_requests(pod, requests)


def _report_missing_claim(
    index: _ObjectIndex, pod: ObjectFacts, entry: PodClaimUse, known: Iterable[_Name]
) -> Iterator[DeferredFinding]:
    known = set(known)
    if not known and not index.complete:
        return
    by_claim = entry.claim is not None
    name = (entry.claim if by_claim else entry.template) or ""
    rule, kind = ("unknown-claim", _CLAIM) if by_claim else ("unknown-template", "ResourceClaimTemplate")
    here = {known_name for namespace, known_name in known if namespace == pod.namespace}
    elsewhere = sorted(namespace for namespace, known_name in known if known_name == name)
    hint = suggest_name(name, here)
    if elsewhere:
        hint = f"a {kind} of this name is in namespace `{elsewhere[0]}`; pods use those of their own"
    finding = FieldFinding(
        rule,
        entry.path,
        f"{kind} `{pod.namespace}/{name}` is not {index.place}",
        expected=format_choices(here, f"a {kind} in namespace `{pod.namespace}`"),
        hint=hint,
        severity=index.get_severity(),
    )
    yield DeferredFinding(pod.location, finding)


def _check_requests(pod: ObjectFacts, requests: dict[str, tuple[str, ...]]) -> Iterator[DeferredFinding]:
    for use in pod.container_uses:
        known = requests.get(use.entry)
        if known is None or use.request in known:
            continue
        finding = FieldFinding(
            "unknown-request",
            use.path,
            f"the claim behind `{use.entry}` has no request `{use.request}`",
            expected=format_choices(known, "no `request`: this claim has none"),
            hint=suggest_name(use.request, known),
        )
        yield DeferredFinding(pod.location, finding)


# --- pools ---


def _filter_newest(slices: list[ObjectFacts]) -> list[ObjectFacts]:
    """The slices of the newest generation."""
    newest = max(fact.slice.generation for fact in slices if fact.slice)
    return [fact for fact in slices if fact.slice and fact.slice.generation == newest]


def _check_pools(index: _ObjectIndex) -> Iterator[DeferredFinding]:
    for (driver, pool), facts in index.pools.items():
        slices = _filter_newest(facts)
        name = f"pool `{driver}/{pool}`, generation {slices[0].slice.generation if slices[0].slice else 0}"
        yield from _check_slice_agreement(slices, name, index.place)
        yield from _check_duplicate_devices(slices, name)


def _check_slice_agreement(slices: list[ObjectFacts], name: str, place: str) -> Iterator[DeferredFinding]:
    first = slices[0].slice
    assert first is not None
    agreed = True
    for fact in slices[1:]:
        other = fact.slice
        assert other is not None
        for field_name, here, there in (
            ("resourceSliceCount", other.slice_count, first.slice_count),
            ("priority", other.priority, first.priority),
        ):
            if here != there:
                agreed = False
                finding = FieldFinding(
                    "slices-disagree",
                    f"spec.pool.{field_name}",
                    f"{name}: `{field_name}` is {_format_optional(here)} here and "
                    f"{_format_optional(there)} in another slice",
                    expected="the same value in every slice of a generation",
                )
                yield DeferredFinding(fact.location, finding, (slices[0].location, f"spec.pool.{field_name}"))
    if agreed:
        yield from _check_slice_count(slices, first.slice_count, name, place)


def _check_slice_count(
    slices: list[ObjectFacts], expected: int, name: str, place: str
) -> Iterator[DeferredFinding]:
    if len(slices) > expected > 0:
        finding = FieldFinding(
            "slices-disagree",
            "spec.pool.resourceSliceCount",
            f"{name}: {len(slices)} slices, but `resourceSliceCount` is {expected}",
            expected=f"`resourceSliceCount: {len(slices)}`, or a new generation",
        )
        yield DeferredFinding(slices[-1].location, finding)
    elif len(slices) < expected:
        finding = FieldFinding(
            "pool-incomplete",
            "spec.pool.resourceSliceCount",
            f"{name}: {len(slices)} of {expected} slices are {place}",
            expected=f"{expected} slices; until then the pool is not used",
        )
        yield DeferredFinding(slices[0].location, finding)


def _check_duplicate_devices(slices: list[ObjectFacts], name: str) -> Iterator[DeferredFinding]:
    seen: dict[str, tuple[ObjectFacts, int]] = {}
    for fact in slices:
        assert fact.slice is not None
        for i, device in enumerate(fact.slice.devices):
            if device not in seen:
                seen[device] = (fact, i)
                continue
            other, j = seen[device]
            if other is fact:
                continue  # twice in one slice: a rule of the slice itself
            finding = FieldFinding(
                "device-twice",
                f"spec.devices[{i}].name",
                f"{name}: device `{device}` is published by another slice too",
                expected="every device of a pool once",
                hint="a device is known by driver, pool and name: a second claim would get the same one",
            )
            yield DeferredFinding(fact.location, finding, (other.location, f"spec.devices[{j}].name"))


def _format_optional(value: int | None) -> str:
    return "unset" if value is None else str(value)


def _check_attribute_types(index: _ObjectIndex) -> Iterator[DeferredFinding]:
    seen: dict[tuple[str, str], tuple[str, ObjectFacts, str]] = {}
    reported: set[tuple[str, str, str]] = set()
    for (driver, _), slices in index.pools.items():
        for fact in _filter_newest(slices):
            for name, held, path in fact.slice.attribute_types if fact.slice else ():
                first, other, other_path = seen.setdefault((driver, name), (held, fact, path))
                if held == first or (driver, name, held) in reported:
                    continue
                reported.add((driver, name, held))
                finding = FieldFinding(
                    "attribute-type-differs",
                    path,
                    f"attribute `{name}` of driver `{driver}` is {held} here and {first} on another device",
                    expected=f"{first} on every device, or another name",
                    at_key=True,
                )
                yield DeferredFinding(fact.location, finding, (other.location, other_path))


def _check_selectors(index: _ObjectIndex) -> Iterator[DeferredFinding]:
    slices = [fact for facts in index.pools.values() for fact in _filter_newest(facts)]
    newest = [fact.slice for fact in slices if fact.slice is not None]
    # Of two classes with one name, the last one applied stays.
    classes = {name: facts[-1] for (_, name), facts in index.get_objects(_DEVICES, "DeviceClass").items()}
    yield from check_selectors(
        SelectorCheckInput(newest, classes, index.using_selectors, index.complete, index.place)
    )


CHECKS: tuple[Callable[[_ObjectIndex], Iterator[DeferredFinding]], ...] = (
    _check_duplicate_objects,
    _check_claims_in_both_groups,
    _check_classes,
    _check_claims,
    _check_pools,
    _check_attribute_types,
    _check_selectors,
)
"""Every check across objects, in the order of their findings."""
