"""Phrases for refusals: devices that were refused alike become one phrase with a number.

Theory of operation: outcomes are grouped by reason and by its subject (which selector, which constraint,
which capacity). Each group is one phrase: `5 in use`, `2 with numa 1 (constraint: …)`. `PHRASE_FORMATTERS`
has one function per reason. With names, a phrase may use the names of devices, claims and pools; a phrase
about many nodes may not, because there each node has its own.

Rules for this file: every reason has a phrase; its words come from the details, nothing is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dray.allocator.refusals import POOL_REASONS, REASON_TEXTS, RefusalReason
from dray.api.devices.selector_analysis import analyze_selector
from dray.explain.diagnosis import DeviceOutcome, NearestDevice, PoolFlaw, RefusalDetails
from dray.explain.wording import MAX_TEXT_LENGTH, join_names, pluralize, to_single_line
from dray.values.quantity import Quantity

_RANK = {reason: rank for rank, reason in enumerate(RefusalReason)}
_MAX_VALUES = 3
_MAX_NAMED_DEVICES = 2

PhraseFormatter = Callable[[Sequence[RefusalDetails], bool], str]
"""Phrases devices that were refused alike; the number precedes the phrase."""


def _choose_by_count(details: Sequence[RefusalDetails], one: str, many: str) -> str:
    return one if len(details) == 1 else many


def _phrase_unsuited(details: Sequence[RefusalDetails], with_names: bool) -> str:
    first = details[0]
    if first.is_outside_class:
        return f"not in {first.owner}"
    verb = _choose_by_count(details, "does not match", "do not match")
    return f"{verb} `{format_condition(first.condition or first.expression)}`"


def _phrase_broken(details: Sequence[RefusalDetails], with_names: bool) -> str:
    return (
        f"cannot be evaluated (`{format_condition(details[0].expression)}` fails: "
        f"{format_error_line(details[0].error)})"
    )


def _phrase_in_use(details: Sequence[RefusalDetails], with_names: bool) -> str:
    holders = list(dict.fromkeys(holder for why in details for holder in why.holders))
    by = f" by {join_names(holders, 3)}" if with_names and holders else ""
    return REASON_TEXTS[RefusalReason.IN_USE] + by


def _phrase_taken_here(details: Sequence[RefusalDetails], with_names: bool) -> str:
    requests = _list_requests(details)
    return f"taken by {requests}" if requests else REASON_TEXTS[RefusalReason.TAKEN_HERE]


def _list_requests(details: Sequence[RefusalDetails]) -> str:
    """The requests of the same pod in some refusals."""
    names = [f"`{why.request}`{format_claim_suffix(why.claim)}" for why in details if why.request]
    return join_names(list(dict.fromkeys(names)), _MAX_VALUES)


def _phrase_missing(details: Sequence[RefusalDetails], with_names: bool) -> str:
    return f"without capacity `{details[0].name}`"


def _phrase_policy(details: Sequence[RefusalDetails], with_names: bool) -> str:
    return f"limited to {details[0].left} of `{details[0].name}` at a time, {_describe_asked(details[0])}"


def _phrase_short(details: Sequence[RefusalDetails], with_names: bool) -> str:
    first = details[0]
    amounts = sorted({why.left for why in details}, key=Quantity.parse)
    left = amounts[0] if len(amounts) == 1 else f"at most {amounts[-1]}"
    rest = "in all" if first.is_total else "left"
    return f"with {left} of `{first.name}` {rest}, {_describe_asked(first)}"


def _describe_asked(why: RefusalDetails) -> str:
    """The amount that was asked for, and what a policy rounded it to."""
    return f"{why.expected} asked (rounded up to {why.wanted})" if why.expected else f"{why.wanted} asked"


def _phrase_unrepresentable(details: Sequence[RefusalDetails], with_names: bool) -> str:
    return f"where the amount of `{details[0].name}` is beyond what a range can hold"


def _phrase_counter(details: Sequence[RefusalDetails], with_names: bool) -> str:
    first = details[0]
    if not first.name:
        return "in a pool whose shared counters are overdrawn"
    needs = sorted({why.wanted for why in details}, key=Quantity.parse)
    least = needs[0] if len(needs) == 1 else f"at least {needs[0]}"
    return f"short of counter `{first.name}` ({first.left} left, {least} needed)"


def _phrase_tainted(details: Sequence[RefusalDetails], with_names: bool) -> str:
    taints = sorted({f"`{why.taint}`{_describe_taint_rule(why)}" for why in details if why.taint})
    return (
        f"{REASON_TEXTS[RefusalReason.TAINTED]} ({join_names(taints, _MAX_VALUES)})"
        if taints
        else REASON_TEXTS[RefusalReason.TAINTED]
    )


def _describe_taint_rule(why: RefusalDetails) -> str:
    """The rule that tainted the device, when it was not its driver."""
    return f" by rule `{why.rule}`" if why.rule else ""


def _phrase_lacks(details: Sequence[RefusalDetails], with_names: bool) -> str:
    return f"without {details[0].name} (a constraint needs it)"


def _phrase_conflict(details: Sequence[RefusalDetails], with_names: bool) -> str:
    first = details[0]
    values = join_names(sorted({why.value for why in details}), _MAX_VALUES)
    peers = join_names(list(dict.fromkeys(peer for why in details for peer in why.peers)), _MAX_VALUES)
    rule = f"different {first.name}" if first.distinct else f"same {first.name} = {first.expected}"
    verb = "taken by" if first.distinct else "like"
    by = f", {verb} {peers}" if with_names and peers else ""
    return f"with {first.name.rpartition('/')[2]} {values} (constraint: {rule}{by})"


def _phrase_leads_nowhere(details: Sequence[RefusalDetails], with_names: bool) -> str:
    requests = _list_requests(details)
    return (
        f"tried, but then {requests} finds nothing" if requests else REASON_TEXTS[RefusalReason.LEADS_NOWHERE]
    )


def _phrase_node_selector(details: Sequence[RefusalDetails], with_names: bool) -> str:
    return "with a node selector of several terms"


def _phrase_binding_conditions(details: Sequence[RefusalDetails], with_names: bool) -> str:
    return "with binding conditions (feature gate DRADeviceBindingConditions is off)"


def _phrase_counters_off(details: Sequence[RefusalDetails], with_names: bool) -> str:
    return "drawing from shared counters (feature gate DRAPartitionableDevices is off)"


def _make_plain_phrase(reason: RefusalReason) -> PhraseFormatter:
    return lambda details, with_names: REASON_TEXTS[reason]


PHRASE_FORMATTERS: dict[RefusalReason, PhraseFormatter] = {
    **{reason: _make_plain_phrase(reason) for reason in RefusalReason},
    RefusalReason.UNSUITED: _phrase_unsuited,
    RefusalReason.BROKEN_SELECTOR: _phrase_broken,
    RefusalReason.IN_USE: _phrase_in_use,
    RefusalReason.TAKEN_HERE: _phrase_taken_here,
    RefusalReason.CAPACITY_MISSING: _phrase_missing,
    RefusalReason.CAPACITY_POLICY: _phrase_policy,
    RefusalReason.CAPACITY_SHORT: _phrase_short,
    RefusalReason.CAPACITY_UNREPRESENTABLE: _phrase_unrepresentable,
    RefusalReason.COUNTER_SHORT: _phrase_counter,
    RefusalReason.TAINTED: _phrase_tainted,
    RefusalReason.ATTRIBUTE_MISSING: _phrase_lacks,
    RefusalReason.CONSTRAINT: _phrase_conflict,
    RefusalReason.NODE_SELECTOR: _phrase_node_selector,
    RefusalReason.BINDING_CONDITIONS: _phrase_binding_conditions,
    RefusalReason.COUNTERS_OFF: _phrase_counters_off,
    RefusalReason.LEADS_NOWHERE: _phrase_leads_nowhere,
}
"""The phrase of each reason, after a number of devices."""

_GROUPING_KEYS: dict[RefusalReason, Callable[[RefusalDetails], tuple[object, ...]]] = {
    RefusalReason.UNSUITED: lambda why: (why.owner if why.is_outside_class else why.condition,),
    RefusalReason.BROKEN_SELECTOR: lambda why: (why.expression, why.error),
    RefusalReason.CAPACITY_SHORT: lambda why: (why.name, why.is_total, why.wanted),
    RefusalReason.CAPACITY_POLICY: lambda why: (why.name, why.left),
    RefusalReason.CAPACITY_MISSING: lambda why: (why.name,),
    RefusalReason.COUNTER_SHORT: lambda why: (why.name, why.left),
    RefusalReason.ATTRIBUTE_MISSING: lambda why: (why.name,),
    RefusalReason.CONSTRAINT: lambda why: (why.name, why.distinct, "" if why.distinct else why.expected),
}


def summarize_refusals(outcomes: Sequence[DeviceOutcome], *, with_names: bool) -> list[str]:
    """Refused devices as phrases, the most frequent first."""
    return [
        f"{len(group)} {PHRASE_FORMATTERS[_get_reason(group)](_collect_details(group), with_names)}"
        for group in _group_alike(outcomes)
    ]


def list_refusals(outcomes: Sequence[DeviceOutcome]) -> list[str]:
    """Like `summarize_refusals`, with the names of devices instead of their number where these are few."""
    phrases = []
    for group in _group_alike(outcomes):
        names = [outcome.device.device for outcome in group]
        devices = join_names(names) if len(names) <= _MAX_NAMED_DEVICES else f"{len(names)} devices"
        phrases.append(f"{devices} {PHRASE_FORMATTERS[_get_reason(group)](_collect_details(group), True)}")
    return phrases


def _group_alike(outcomes: Sequence[DeviceOutcome]) -> list[list[DeviceOutcome]]:
    """Outcomes with the same phrase, the largest group first."""
    groups: dict[tuple[object, ...], list[DeviceOutcome]] = {}
    for outcome in outcomes:
        if outcome.why is not None:
            get_subject = _GROUPING_KEYS.get(outcome.why.reason)
            key = (outcome.why.reason, *(get_subject(outcome.why) if get_subject else ()))
            groups.setdefault(key, []).append(outcome)
    return sorted(groups.values(), key=lambda group: (-len(group), _RANK[_get_reason(group)]))


def _collect_details(outcomes: Sequence[DeviceOutcome]) -> list[RefusalDetails]:
    return [outcome.why for outcome in outcomes if outcome.why is not None]


def _get_reason(outcomes: Sequence[DeviceOutcome]) -> RefusalReason:
    return _collect_details(outcomes)[0].reason


def format_claim_suffix(claim: str) -> str:
    """The claim of a request, where it is not obvious; claims of a pod share its namespace."""
    return f" (claim {claim.rpartition('/')[2]})" if claim else ""


def format_condition(condition: str) -> str:
    """A selector, or a condition of one, short enough for a sentence."""
    return to_single_line(analyze_selector(condition).short_text, MAX_TEXT_LENGTH)


def format_error_line(error: str) -> str:
    """The first line of an error; the others show the source."""
    return to_single_line(error.splitlines()[0] if error.strip() else "unknown error", 2 * MAX_TEXT_LENGTH)


def format_pool_flaw(flaw: PoolFlaw, *, with_names: bool) -> str:
    """A pool whose devices cannot be allocated, and why."""
    pool = f"pool {flaw.driver}/{flaw.pool if with_names else flaw.pattern}"
    if flaw.reason is RefusalReason.POOL_INCOMPLETE:
        slices = f"{flaw.published} of {pluralize(flaw.expected, 'slice')}"
        return f"{pool} is incomplete: {slices}, generation {flaw.generation}"
    if flaw.reason is RefusalReason.COUNTERS_OFF:
        return f"{pool} has partitions (feature gate DRAPartitionableDevices is off)"
    if flaw.reason is RefusalReason.POOL_UNKNOWN_FIELDS:
        return f"{pool} is not usable: {flaw.text}"
    return f"{pool} is invalid: {flaw.text}" if flaw.text else f"{pool} is invalid"


def format_nearest(nearest: NearestDevice, expression: str, *, with_names: bool) -> str:
    """How close the nearest device comes to a selector."""
    name = nearest.device.device if with_names else "one"
    what = nearest.value if nearest.is_amount else f"{nearest.subject} {nearest.value}"
    has = f"has {what}" if nearest.value else f"has no {nearest.subject}"
    if nearest.condition == expression:
        return f"nearest: {name} {has}"
    condition = f"`{format_condition(nearest.condition)}`"
    failing = f"meets all but {condition}" if nearest.all_but else f"fails {condition} and more"
    return f"nearest: {name} {failing}" + (f", {has}" if nearest.subject else "")


def format_obstacle(why: RefusalDetails) -> str:
    """What rules out a whole alternative; empty where its devices show it."""
    match why.reason:
        case RefusalReason.TOO_MANY_DEVICES:
            return f"the claim comes to {why.wanted} devices, but can hold at most {why.left}"
        case reason if reason in POOL_REASONS:
            return "all devices are asked for, but not all can be seen"
        case RefusalReason.TOO_FEW if why.wanted:
            return f"{REASON_TEXTS[RefusalReason.TOO_FEW]}: {why.wanted} needed, {why.left} to be had"
        case RefusalReason.CONSTRAINT:
            kind = "different" if why.distinct else "the same"
            return f"too few devices have {kind} {why.name}"
        case RefusalReason.COUNTER_SHORT:
            return f"counter `{why.name}` has {why.left} left, {why.wanted} needed"
        case _:
            return ""
