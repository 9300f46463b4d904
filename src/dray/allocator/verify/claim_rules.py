"""What one claim must keep by itself: the right devices, as many as asked, matching, tolerated, constrained.

Theory of operation: every rule is a statement about sets: which devices are had, and for what. Nothing
depends on the order in which they were found, so nothing of the search is repeated here. A rule yields a
finding for everything that breaks it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction

from dray.allocator.verify.amounts import due, exact
from dray.allocator.verify.available_devices import Lent
from dray.allocator.verify.claim_case import Case, Part, place_of
from dray.allocator.verify.findings import Finding, Rule
from dray.api.resource import DeviceConstraint, DeviceTaint, DeviceToleration

MAX_RESULTS = 32
"""Devices one claim can hold."""


def limit(case: Case) -> Iterator[Finding]:
    """A claim holds at most so many devices."""
    if len(case.parts) > MAX_RESULTS:
        yield case.finding(Rule.LIMIT, f"has {len(case.parts)} results, at most {MAX_RESULTS} are allowed")


def requests_exist(case: Case) -> Iterator[Finding]:
    """Every result is for a request, or an alternative, of the claim."""
    for part in case.parts:
        if part.ask is None:
            yield case.finding(Rule.REQUEST, f"`{part.result.request}` is no request of the claim")
        elif part.ask.device_class_name not in {item.metadata.name for item in case.given.classes}:
            yield case.finding(Rule.CLASS, f"class `{part.ask.device_class_name}` does not exist")


def one_alternative(case: Case) -> Iterator[Finding]:
    """The results of a request are all of one alternative."""
    for request in case.claim.spec.devices.requests:
        names = {part.result.request for part in case.parts if part.request == request.name}
        if len(names) > 1:
            text = f"request `{request.name}` mixes alternatives: {', '.join(sorted(names))}"
            yield case.finding(Rule.ALTERNATIVE, text)


def devices_exist(case: Case) -> Iterator[Finding]:
    """Every device is one that a usable pool lends to the node."""
    for part in case.parts:
        if case.lent(part) is None:
            result = part.result
            flaw = case.lending.unusable.get((result.driver, result.pool), "the node does not see it")
            withheld = case.lending.withheld.get(place_of(result))
            if withheld is not None:
                flaw = f"it {withheld.why}"
            elif case.lending.is_hidden(place_of(result)):
                flaw = "its slice has partitions, but feature gate DRAPartitionableDevices is off"
            yield case.finding(Rule.DEVICE, f"device {part} cannot be used: {flaw}")


def selectors_hold(case: Case) -> Iterator[Finding]:
    """Class and request selectors are true of every device, and it can give what is asked."""
    for part in case.parts:
        lent = case.lent(part)
        if lent is not None and _verdict(case, part, lent) is not True:
            yield case.finding(Rule.SELECTOR, f"device {part} does not match request `{part.result.request}`")


def _verdict(case: Case, part: Part, lent: Lent) -> bool | str:
    """Whether a device matches what a part asks; a text when that cannot be judged."""
    if part.ask is None:
        return False
    classes = [item for item in case.given.classes if item.metadata.name == part.ask.device_class_name]
    for selector in (*(s for item in classes for s in item.spec.selectors), *part.ask.selectors):
        verdict = selector.cel is not None and case.given.judge(
            selector.cel.expression, lent.driver, lent.device
        )
        if verdict is not True:
            return verdict
    return due(lent.device, part.asked) is not None


def counts_are_exact(case: Case) -> Iterator[Finding]:
    """A request has as many devices as it asks for; one without devices must have asked for none."""
    for request in case.claim.spec.devices.requests:
        had = [part for part in case.parts if part.request == request.name and part.ask is not None]
        asks = [request.exactly] if request.exactly is not None else list(request.first_available)
        if not had:
            if not any(ask.allocation_mode == "ExactCount" and ask.count == 0 for ask in asks):
                yield case.finding(Rule.COUNT, f"request `{request.name}` has no device")
            continue
        ask = had[0].ask
        if ask is not None and ask.allocation_mode == "ExactCount" and ask.count != len(had):
            text = f"request `{had[0].result.request}` has {len(had)} devices, it asks for {ask.count}"
            yield case.finding(Rule.COUNT, text)


def all_means_all(case: Case) -> Iterator[Finding]:
    """A request for all has every matching device; that cannot be known while a pool is unusable."""
    asked = {part.result.request: part for part in case.parts if part.ask is not None}
    for name, part in asked.items():
        if part.ask is None or part.ask.allocation_mode != "All":
            continue
        for pool, flaw in case.lending.unusable.items():
            text = f"request `{name}` asks for all devices, but pool {'/'.join(pool)} is unusable: {flaw}"
            yield case.finding(Rule.ALL, text)
        had = {place_of(other.result) for other in case.parts if other.result.request == name}
        withheld = {
            place: Lent(place[0], place[1], device, device)
            for place, device in case.lending.withheld.items()
            if device.is_selectable
        }
        for place, lent in {**case.lending.devices, **withheld}.items():
            if place not in had and _verdict(case, part, lent) is not False:
                yield case.finding(Rule.ALL, f"request `{name}` asks for all devices, but {lent} is missing")


def nothing_twice(case: Case) -> Iterator[Finding]:
    """A request never has a device twice, not even as two shares."""
    for (request, place), times in Counter(
        (p.result.request, place_of(p.result)) for p in case.parts
    ).items():
        if times > 1:
            text = f"request `{request}` has device {'/'.join(place)} {times} times"
            yield case.finding(Rule.TWICE, text)


def taints_are_tolerated(case: Case) -> Iterator[Finding]:
    """Every taint that keeps pods away is tolerated by the request."""
    for part in case.parts:
        lent = case.lent(part)
        if lent is None or part.ask is None:
            continue
        for taint in lent.device.taints:
            if taint.effect in ("NoSchedule", "NoExecute") and not _tolerated(taint, part.ask.tolerations):
                text = f"device {part} is tainted `{taint.key}:{taint.effect}`, which nothing tolerates"
                yield case.finding(Rule.TAINTS, text)


def _tolerated(taint: DeviceTaint, tolerations: tuple[DeviceToleration, ...]) -> bool:
    for said in tolerations:
        same_value = said.operator == "Exists" or (
            said.operator in ("", "Equal") and said.value == taint.value
        )
        if said.key in ("", taint.key) and said.effect in ("", taint.effect) and same_value:
            return True
    return False


def constraints_hold(case: Case) -> Iterator[Finding]:
    """Devices under a constraint all share a value of the attribute, or no two of them do."""
    for i, said in enumerate(case.claim.spec.devices.constraints):
        covered = [part for part in case.parts if _covers(said, part)]
        sets = [_values(case, part, said) for part in covered]
        common = set.intersection(*sets) if sets else {("", "")}
        every = [value for values in sets for value in values]
        holds = bool(common) if said.match_attribute is not None else len(set(every)) == len(every)
        if not holds or not all(sets):
            what = "matchAttribute" if said.match_attribute is not None else "distinctAttribute"
            attribute = said.match_attribute or said.distinct_attribute
            devices = ", ".join(str(part) for part in covered)
            text = f"constraint {i} ({what} `{attribute}`) does not hold for {devices}"
            yield case.finding(Rule.CONSTRAINT, text)


def _covers(said: DeviceConstraint, part: Part) -> bool:
    return not said.requests or part.result.request in said.requests or part.request in said.requests


def _values(case: Case, part: Part, said: DeviceConstraint) -> set[tuple[str, int | bool | str]]:
    lent = case.lent(part)
    attribute = said.match_attribute or said.distinct_attribute or ""
    if lent is None:
        return set()
    bare = attribute.removeprefix(f"{lent.driver}/")
    found = lent.device.attributes.get(attribute) or lent.device.attributes.get(bare)
    held = found.held() if found is not None else None
    return {(held[0], value) for value in held[1]} if held is not None else set()


def shares_are_marked(case: Case) -> Iterator[Finding]:
    """A share has an id and says what it consumes, completely; a whole device has neither."""
    for part in case.parts:
        lent, result = case.lent(part), part.result
        if lent is None or part.ask is None:
            continue
        if (result.share_id is not None) != lent.is_shared:
            what = "has no share id" if lent.is_shared else "is no share, but has a share id"
            yield case.finding(Rule.SHARE_ID, f"device {part} {what}")
        wanted = (due(lent.device, part.asked) or {}) if lent.is_shared else {}
        said = {name: exact(amount) for name, amount in result.consumed_capacity.items()}
        if said != wanted:
            text = f"device {part} consumes {_amounts(said)}, it should consume {_amounts(wanted)}"
            yield case.finding(Rule.CONSUMED, text)


def _amounts(amounts: Mapping[str, Fraction]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in sorted(amounts.items())) or "nothing"


RULES = (
    limit,
    requests_exist,
    one_alternative,
    devices_exist,
    selectors_hold,
    counts_are_exact,
    all_means_all,
    nothing_twice,
    taints_are_tolerated,
    constraints_hold,
    shares_are_marked,
)
"""Every rule about one claim."""
