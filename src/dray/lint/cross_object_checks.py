"""All objects together: references that lead nowhere, names taken twice, pools that contradict themselves.

Selectors that do not fit the devices have a room of their own, `selectorchecks`.

Theory of operation: `crosscheck` sees only `Facts`. It sorts them into an index once, and each check of
`CHECKS` reads the index and yields charges. A reference to an object that is not among the manifests is
doubtful only when the manifests define objects of that kind at all: a lone claim may well rely on classes of
its cluster. `complete` says that nothing outside the manifests counts; then a reference that leads nowhere is
an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from dray.lint.findings import Charge, Complaint
from dray.lint.object_facts import ClassUse, Entry, Facts
from dray.lint.rules import Severity
from dray.lint.selectors.checks import Given, check_selectors
from dray.lint.suggestions import did_you_mean

_DEVICES, _CLASSIC = "resource.k8s.io", "cdi.k8s.io"
_Name = tuple[str, str]
_Key = tuple[str, str]
_CLAIM: Final = "ResourceClaim"


@dataclass(frozen=True, slots=True)
class _Index:
    """Facts by what checks ask for: kind, then namespace and name."""

    objects: dict[_Key, dict[_Name, list[Facts]]] = field(default_factory=lambda: defaultdict(dict))
    pods: list[Facts] = field(default_factory=list)
    asking: list[Facts] = field(default_factory=list)
    selecting: list[Facts] = field(default_factory=list)
    pools: dict[_Name, list[Facts]] = field(default_factory=lambda: defaultdict(list))
    complete: bool = False

    def named(self, group: str, kind: str) -> dict[_Name, list[Facts]]:
        return self.objects.get((group, kind), {})

    def weight(self) -> Severity:
        """How much a doubt about a missing object weighs."""
        return Severity.ERROR if self.complete else Severity.WARNING


def crosscheck(facts: Iterable[Facts], *, complete: bool = False) -> list[Charge]:
    """Everything that only shows when all objects are known."""
    index = _Index(complete=complete)
    for fact in facts:
        if fact.name:
            same_kind = index.objects[fact.group, fact.kind]
            same_kind.setdefault((fact.namespace, fact.name), []).append(fact)
        if fact.kind == "Pod":
            index.pods.append(fact)
        if fact.device_classes or fact.classic_classes:
            index.asking.append(fact)
        if any(ask.selectors for ask in fact.asks):
            index.selecting.append(fact)
        if fact.page is not None:
            index.pools[fact.page.driver, fact.page.pool].append(fact)
    return [charge for check in CHECKS for charge in check(index)]


# --- names ---


def _same_names(index: _Index) -> Iterator[Charge]:
    for named in index.objects.values():
        for facts in named.values():
            for again in facts[1:]:
                message = f"{facts[0].where.subject} is defined twice; only the last one applied stays"
                complaint = Complaint(
                    "duplicate-object",
                    "metadata.name",
                    message,
                    expected="one object of this kind, namespace and name",
                    severity=index.weight(),
                )
                yield Charge(again.where, complaint, (facts[0].where, "metadata.name"))


def _both_groups(index: _Index) -> Iterator[Charge]:
    devices, classic = index.named(_DEVICES, _CLAIM), index.named(_CLASSIC, _CLAIM)
    for name in devices.keys() & classic.keys():
        complaint = Complaint(
            "claim-in-both-groups",
            "metadata.name",
            f"a claim called `{name[1]}` exists in `{_DEVICES}` too; a pod that names it could mean either",
            expected="names that are unique across both groups",
        )
        yield Charge(classic[name][0].where, complaint, (devices[name][0].where, "metadata.name"))


# --- references ---


def _classes(index: _Index) -> Iterator[Charge]:
    for fact in index.asking:
        yield from _missing_classes(index, fact, fact.device_classes, (_DEVICES, "DeviceClass"))
        yield from _missing_classes(index, fact, fact.classic_classes, (_CLASSIC, "ResourceClass"))


def _missing_classes(index: _Index, fact: Facts, uses: tuple[ClassUse, ...], kind: _Key) -> Iterator[Charge]:
    known = {name for _, name in index.named(*kind)}
    if not known and not index.complete:
        return
    for use in uses:
        if use.name not in known:
            complaint = Complaint(
                "unknown-class",
                use.path,
                f"{kind[1]} `{use.name}` is not among these manifests",
                expected=_names(known, f"a {kind[1]}"),
                hint=did_you_mean(use.name, known),
                severity=index.weight(),
            )
            yield Charge(fact.where, complaint)


def _claims(index: _Index) -> Iterator[Charge]:
    claims = {**index.named(_CLASSIC, _CLAIM), **index.named(_DEVICES, _CLAIM)}
    templates = index.named(_DEVICES, "ResourceClaimTemplate")
    for pod in index.pods:
        requests: dict[str, tuple[str, ...]] = {}
        for entry in pod.entries:
            name = entry.claim if entry.claim is not None else entry.template
            if not name:
                continue
            known = claims if entry.claim is not None else templates
            found = known.get((pod.namespace, name))
            if found is None:
                yield from _missing_claim(index, pod, entry, known.keys())
            else:
                requests[entry.name] = found[0].requests
        yield from _missing_requests(pod, requests)


def _missing_claim(index: _Index, pod: Facts, entry: Entry, known: Iterable[_Name]) -> Iterator[Charge]:
    known = set(known)
    if not known and not index.complete:
        return
    by_claim = entry.claim is not None
    name = (entry.claim if by_claim else entry.template) or ""
    rule, kind = ("unknown-claim", _CLAIM) if by_claim else ("unknown-template", "ResourceClaimTemplate")
    here = {known_name for namespace, known_name in known if namespace == pod.namespace}
    elsewhere = sorted(namespace for namespace, known_name in known if known_name == name)
    hint = did_you_mean(name, here)
    if elsewhere:
        hint = f"a {kind} of this name is in namespace `{elsewhere[0]}`; pods use those of their own"
    complaint = Complaint(
        rule,
        entry.path,
        f"{kind} `{pod.namespace}/{name}` is not among these manifests",
        expected=_names(here, f"a {kind} in namespace `{pod.namespace}`"),
        hint=hint,
        severity=index.weight(),
    )
    yield Charge(pod.where, complaint)


def _missing_requests(pod: Facts, requests: dict[str, tuple[str, ...]]) -> Iterator[Charge]:
    for use in pod.uses:
        known = requests.get(use.entry)
        if known is None or "/" in use.request or use.request in known:
            continue
        complaint = Complaint(
            "unknown-request",
            use.path,
            f"the claim behind `{use.entry}` has no request `{use.request}`",
            expected=_names(known, "no `request`: this claim has none"),
            hint=did_you_mean(use.request, known),
        )
        yield Charge(pod.where, complaint)


def _names(known: Iterable[str], otherwise: str) -> str:
    """The names to choose from, when they are few enough to read."""
    names = sorted(set(known))
    if not names or len(names) > _FEW:
        return otherwise
    return ("one of " if len(names) > 1 else "") + ", ".join(f"`{name}`" for name in names)


_FEW: Final = 10


# --- pools ---


def _newest(slices: list[Facts]) -> list[Facts]:
    """The slices of the newest generation; older ones no longer count."""
    newest = max(fact.page.generation for fact in slices if fact.page)
    return [fact for fact in slices if fact.page and fact.page.generation == newest]


def _pools(index: _Index) -> Iterator[Charge]:
    for (driver, pool), facts in index.pools.items():
        slices = _newest(facts)
        name = f"pool `{driver}/{pool}`, generation {slices[0].page.generation if slices[0].page else 0}"
        yield from _disagreements(slices, name)
        yield from _published_twice(slices, name)


def _disagreements(slices: list[Facts], name: str) -> Iterator[Charge]:
    first = slices[0].page
    assert first is not None
    agreed = True
    for fact in slices[1:]:
        page = fact.page
        assert page is not None
        for field_name, mine, theirs in (
            ("resourceSliceCount", page.slices, first.slices),
            ("priority", page.priority, first.priority),
        ):
            if mine != theirs:
                agreed = False
                complaint = Complaint(
                    "slices-disagree",
                    f"spec.pool.{field_name}",
                    f"{name}: `{field_name}` is {_shown(mine)} here and {_shown(theirs)} in another slice",
                    expected="the same value in every slice of a generation",
                )
                yield Charge(fact.where, complaint, (slices[0].where, f"spec.pool.{field_name}"))
    if agreed:
        yield from _count(slices, first.slices, name)


def _count(slices: list[Facts], expected: int, name: str) -> Iterator[Charge]:
    if len(slices) > expected > 0:
        complaint = Complaint(
            "slices-disagree",
            "spec.pool.resourceSliceCount",
            f"{name}: {len(slices)} slices, but `resourceSliceCount` is {expected}",
            expected=f"`resourceSliceCount: {len(slices)}`, or a new generation",
        )
        yield Charge(slices[-1].where, complaint)
    elif len(slices) < expected:
        complaint = Complaint(
            "pool-incomplete",
            "spec.pool.resourceSliceCount",
            f"{name}: {len(slices)} of {expected} slices are among these manifests",
            expected=f"{expected} slices; until then the pool is not used",
        )
        yield Charge(slices[0].where, complaint)


def _published_twice(slices: list[Facts], name: str) -> Iterator[Charge]:
    seen: dict[str, tuple[Facts, int]] = {}
    for fact in slices:
        assert fact.page is not None
        for i, device in enumerate(fact.page.devices):
            if device not in seen:
                seen[device] = (fact, i)
                continue
            other, j = seen[device]
            if other is fact:
                continue  # twice in one slice: a rule of the slice itself
            complaint = Complaint(
                "device-twice",
                f"spec.devices[{i}].name",
                f"{name}: device `{device}` is published by another slice too",
                expected="every device of a pool once",
                hint="a device is known by driver, pool and name: whoever comes second would get it again",
            )
            yield Charge(fact.where, complaint, (other.where, f"spec.devices[{j}].name"))


def _shown(value: int | None) -> str:
    return "unset" if value is None else str(value)


def _attribute_types(index: _Index) -> Iterator[Charge]:
    seen: dict[tuple[str, str], tuple[str, Facts, str]] = {}
    told: set[tuple[str, str, str]] = set()
    for (driver, _), slices in index.pools.items():
        for fact in _newest(slices):
            for name, held, path in fact.page.types if fact.page else ():
                first, other, other_path = seen.setdefault((driver, name), (held, fact, path))
                if held == first or (driver, name, held) in told:
                    continue
                told.add((driver, name, held))
                complaint = Complaint(
                    "attribute-type-differs",
                    path,
                    f"attribute `{name}` of driver `{driver}` is {held} here and {first} on another device",
                    expected=f"{first} on every device, or another name",
                    at_key=True,
                )
                yield Charge(fact.where, complaint, (other.where, other_path))


def _selectors(index: _Index) -> Iterator[Charge]:
    slices = [fact for facts in index.pools.values() for fact in _newest(facts)]
    pages = [fact.page for fact in slices if fact.page is not None]
    # Of two classes with one name, the last one applied stays.
    classes = {name: facts[-1] for (_, name), facts in index.named(_DEVICES, "DeviceClass").items()}
    yield from check_selectors(Given(pages, classes, index.selecting, index.complete))


CHECKS: tuple[Callable[[_Index], Iterator[Charge]], ...] = (
    _same_names,
    _both_groups,
    _classes,
    _claims,
    _pools,
    _attribute_types,
    _selectors,
)
"""Every check across objects, in the order of their findings."""
