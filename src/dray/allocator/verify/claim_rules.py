"""Rules for one claim: the right devices, as many as requested, matching, tolerated, constrained.

Theory of operation: every rule is a statement about sets: which devices it has, and for what. Nothing
depends on the order in which they were found, so nothing of the search is repeated here. A rule yields a
finding for everything that breaks it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction

from dray.allocator.verify.amounts import derive_consumption, to_fraction
from dray.allocator.verify.available_devices import AvailableDevice
from dray.allocator.verify.claim_case import ClaimCase, ResultPart, get_device_path
from dray.allocator.verify.findings import AllocationFinding, AllocationRule
from dray.api.resource import DeviceConstraint, DeviceTaint, DeviceToleration

MAX_RESULTS = 32
"""Devices that one claim can have."""


def check_limit(case: ClaimCase) -> Iterator[AllocationFinding]:
    """A claim holds at most so many devices."""
    if len(case.parts) > MAX_RESULTS:
        yield case.build_finding(
            AllocationRule.LIMIT, f"has {len(case.parts)} results, at most {MAX_RESULTS} are allowed"
        )


def check_requests_exist(case: ClaimCase) -> Iterator[AllocationFinding]:
    """Every result is for a request, or an alternative, of the claim."""
    for part in case.parts:
        if part.spec is None:
            yield case.build_finding(
                AllocationRule.REQUEST, f"`{part.result.request}` is no request of the claim"
            )
        elif part.spec.device_class_name not in {item.metadata.name for item in case.inputs.classes}:
            yield case.build_finding(
                AllocationRule.CLASS, f"class `{part.spec.device_class_name}` does not exist"
            )


def check_one_alternative(case: ClaimCase) -> Iterator[AllocationFinding]:
    """The results of a request are all of one alternative."""
    for request in case.claim.spec.devices.requests:
        names = {part.result.request for part in case.parts if part.request == request.name}
        if len(names) > 1:
            text = f"request `{request.name}` mixes alternatives: {', '.join(sorted(names))}"
            yield case.build_finding(AllocationRule.ALTERNATIVE, text)


def check_devices_exist(case: ClaimCase) -> Iterator[AllocationFinding]:
    """Every device is one that a usable pool offers to the node."""
    for part in case.parts:
        if case.find_device(part) is None:
            result = part.result
            flaw = case.available.unusable.get((result.driver, result.pool), "the node does not see it")
            withheld = case.available.withheld.get(get_device_path(result))
            if withheld is not None:
                flaw = f"it {withheld.why}"
            elif case.available.is_hidden(get_device_path(result)):
                flaw = "its slice has partitions, but feature gate DRAPartitionableDevices is off"
            yield case.build_finding(AllocationRule.DEVICE, f"device {part} cannot be used: {flaw}")


def check_selectors(case: ClaimCase) -> Iterator[AllocationFinding]:
    """Class and request selectors are true of every device, and it can give what is asked."""
    for part in case.parts:
        lent = case.find_device(part)
        if lent is not None and _evaluate_match(case, part, lent) is not True:
            yield case.build_finding(
                AllocationRule.SELECTOR, f"device {part} does not match request `{part.result.request}`"
            )


def _evaluate_match(case: ClaimCase, part: ResultPart, device: AvailableDevice) -> bool | str:
    """Whether a device matches what a part asks; a text when that cannot be evaluated."""
    if part.spec is None:
        return False
    classes = [item for item in case.inputs.classes if item.metadata.name == part.spec.device_class_name]
    for selector in (*(s for item in classes for s in item.spec.selectors), *part.spec.selectors):
        result = selector.cel is not None and case.inputs.evaluator(
            selector.cel.expression, device.driver, device.device
        )
        if result is not True:
            return result
    return derive_consumption(device.device, part.requested_amounts) is not None


def check_counts(case: ClaimCase) -> Iterator[AllocationFinding]:
    """A request has as many devices as it asks for; one without devices must have asked for none."""
    for request in case.claim.spec.devices.requests:
        had = [part for part in case.parts if part.request == request.name and part.spec is not None]
        asks = [request.exactly] if request.exactly is not None else list(request.first_available)
        if not had:
            if not any(spec.allocation_mode == "ExactCount" and spec.count == 0 for spec in asks):
                yield case.build_finding(AllocationRule.COUNT, f"request `{request.name}` has no device")
            continue
        spec = had[0].spec
        if spec is not None and spec.allocation_mode == "ExactCount" and spec.count != len(had):
            text = f"request `{had[0].result.request}` has {len(had)} devices, it asks for {spec.count}"
            yield case.build_finding(AllocationRule.COUNT, text)


def check_all_mode(case: ClaimCase) -> Iterator[AllocationFinding]:
    """A request for all has every matching device; that cannot be known while a pool is unusable."""
    asked = {part.result.request: part for part in case.parts if part.spec is not None}
    for name, part in asked.items():
        if part.spec is None or part.spec.allocation_mode != "All":
            continue
        for pool, flaw in case.available.unusable.items():
            text = f"request `{name}` asks for all devices, but pool {'/'.join(pool)} is unusable: {flaw}"
            yield case.build_finding(AllocationRule.ALL, text)
        had = {get_device_path(other.result) for other in case.parts if other.result.request == name}
        withheld = {
            place: AvailableDevice(place[0], place[1], device, device)
            for place, device in case.available.withheld.items()
            if device.is_selectable
        }
        for place, lent in {**case.available.devices, **withheld}.items():
            if place not in had and _evaluate_match(case, part, lent) is not False:
                yield case.build_finding(
                    AllocationRule.ALL, f"request `{name}` asks for all devices, but {lent} is missing"
                )


def check_no_duplicates(case: ClaimCase) -> Iterator[AllocationFinding]:
    """A request never has a device twice, not even as two shares."""
    for (request, place), times in Counter(
        (p.result.request, get_device_path(p.result)) for p in case.parts
    ).items():
        if times > 1:
            text = f"request `{request}` has device {'/'.join(place)} {times} times"
            yield case.build_finding(AllocationRule.TWICE, text)


def check_taints(case: ClaimCase) -> Iterator[AllocationFinding]:
    """Every taint that keeps pods away is tolerated by the request."""
    for part in case.parts:
        lent = case.find_device(part)
        if lent is None or part.spec is None:
            continue
        for taint in lent.device.taints:
            if taint.effect in ("NoSchedule", "NoExecute") and not _is_tolerated(
                taint, part.spec.tolerations
            ):
                text = f"device {part} is tainted `{taint.key}:{taint.effect}`, which nothing tolerates"
                yield case.build_finding(AllocationRule.TAINTS, text)


def _is_tolerated(taint: DeviceTaint, tolerations: tuple[DeviceToleration, ...]) -> bool:
    for toleration in tolerations:
        same_value = toleration.operator == "Exists" or (
            toleration.operator in ("", "Equal") and toleration.value == taint.value
        )
        if toleration.key in ("", taint.key) and toleration.effect in ("", taint.effect) and same_value:
            return True
    return False


def check_constraints(case: ClaimCase) -> Iterator[AllocationFinding]:
    """Devices under a constraint all share a value of the attribute, or no two of them do."""
    for i, constraint in enumerate(case.claim.spec.devices.constraints):
        covered = [part for part in case.parts if _covers_request(constraint, part)]
        sets = [_collect_values(case, part, constraint) for part in covered]
        common = set.intersection(*sets) if sets else {("", "")}
        every = [value for values in sets for value in values]
        holds = bool(common) if constraint.match_attribute is not None else len(set(every)) == len(every)
        if not holds or not all(sets):
            what = "matchAttribute" if constraint.match_attribute is not None else "distinctAttribute"
            attribute = constraint.match_attribute or constraint.distinct_attribute
            devices = ", ".join(str(part) for part in covered)
            text = f"constraint {i} ({what} `{attribute}`) does not hold for {devices}"
            yield case.build_finding(AllocationRule.CONSTRAINT, text)


def _covers_request(constraint: DeviceConstraint, part: ResultPart) -> bool:
    return (
        not constraint.requests
        or part.result.request in constraint.requests
        or part.request in constraint.requests
    )


def _collect_values(
    case: ClaimCase, part: ResultPart, constraint: DeviceConstraint
) -> set[tuple[str, int | bool | str]]:
    lent = case.find_device(part)
    attribute = constraint.match_attribute or constraint.distinct_attribute or ""
    if lent is None:
        return set()
    bare = attribute.removeprefix(f"{lent.driver}/")
    found = lent.device.attributes.get(attribute) or lent.device.attributes.get(bare)
    held = found.get_typed_values() if found is not None else None
    return {(held[0], value) for value in held[1]} if held is not None else set()


def check_share_marks(case: ClaimCase) -> Iterator[AllocationFinding]:
    """A share has an id and says what it consumes, completely; a whole device has neither."""
    for part in case.parts:
        lent, result = case.find_device(part), part.result
        if lent is None or part.spec is None:
            continue
        if (result.share_id is not None) != lent.is_shared:
            what = "has no share id" if lent.is_shared else "is no share, but has a share id"
            yield case.build_finding(AllocationRule.SHARE_ID, f"device {part} {what}")
        expected = (derive_consumption(lent.device, part.requested_amounts) or {}) if lent.is_shared else {}
        consumed = {name: to_fraction(amount) for name, amount in result.consumed_capacity.items()}
        if consumed != expected:
            amounts = f"{_format_amounts(consumed)}, it should consume {_format_amounts(expected)}"
            text = f"device {part} consumes {amounts}"
            yield case.build_finding(AllocationRule.CONSUMED, text)


def _format_amounts(amounts: Mapping[str, Fraction]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in sorted(amounts.items())) or "nothing"


RULES = (
    check_limit,
    check_requests_exist,
    check_one_alternative,
    check_devices_exist,
    check_selectors,
    check_counts,
    check_all_mode,
    check_no_duplicates,
    check_taints,
    check_constraints,
    check_share_marks,
)
"""Every rule about one claim."""
