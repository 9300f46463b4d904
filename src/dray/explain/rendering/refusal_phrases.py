"""Reasons in words: devices that were refused alike become one phrase with a number.

Theory of operation: accounts are sorted into heaps by reason and by what the reason is about (which selector,
which constraint, which capacity). Each heap is one phrase: `5 in use`, `2 with numa 1 (constraint: …)`.
`PHRASES` says how, reason by reason. A phrase that is *named* may use the names of devices, claims and pools;
one that stands for many nodes may not, because there each node has its own.

Rules for this file: every reason has a phrase; what it says is in the account, nothing is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dray.allocator.refusals import TEXTS, Reason
from dray.explain.diagnosis import Account, Nearest, PoolFlaw, Why
from dray.explain.failed_conditions import short_form
from dray.explain.wording import LONGEST, joined, plain, plural
from dray.values.quantity import Quantity

_RANK = {reason: rank for rank, reason in enumerate(Reason)}
_MOST_VALUES = 3
_FEW = 2

Phrase = Callable[[Sequence[Why], bool], str]
"""What to say of devices that were refused alike; the number comes before it."""


def _one_or_many(whys: Sequence[Why], one: str, many: str) -> str:
    return one if len(whys) == 1 else many


def _unsuited(whys: Sequence[Why], named: bool) -> str:
    first = whys[0]
    if first.owner.startswith("class "):
        return f"not in {first.owner}"
    verb = _one_or_many(whys, "does not match", "do not match")
    return f"{verb} `{condition_text(first.condition or first.expression)}`"


def _broken(whys: Sequence[Why], named: bool) -> str:
    return f"cannot be judged (`{condition_text(whys[0].expression)}` fails: {error_line(whys[0].error)})"


def _in_use(whys: Sequence[Why], named: bool) -> str:
    holders = list(dict.fromkeys(holder for why in whys for holder in why.holders))
    by = f" by {joined(holders, 3)}" if named and holders else ""
    return TEXTS[Reason.IN_USE][0] + by


def _taken_here(whys: Sequence[Why], named: bool) -> str:
    requests = _requests(whys)
    return f"taken by {requests}" if requests else TEXTS[Reason.TAKEN_HERE][0]


def _requests(whys: Sequence[Why]) -> str:
    """The requests of the same pod that reasons speak of."""
    said = [f"`{why.request}`{of_claim(why.claim)}" for why in whys if why.request]
    return joined(list(dict.fromkeys(said)), _MOST_VALUES)


def _missing(whys: Sequence[Why], named: bool) -> str:
    return f"without capacity `{whys[0].name}`"


def _policy(whys: Sequence[Why], named: bool) -> str:
    return f"limited to {whys[0].left} of `{whys[0].name}` at a time, {_asked(whys[0])}"


def _short(whys: Sequence[Why], named: bool) -> str:
    first = whys[0]
    amounts = sorted({why.left for why in whys}, key=Quantity.parse)
    left = amounts[0] if len(amounts) == 1 else f"at most {amounts[-1]}"
    rest = "in all" if first.is_total else "left"
    return f"with {left} of `{first.name}` {rest}, {_asked(first)}"


def _asked(why: Why) -> str:
    """What was asked, and what became of it when a policy rounded it."""
    return f"{why.expected} asked (rounded up to {why.wanted})" if why.expected else f"{why.wanted} asked"


def _unrepresentable(whys: Sequence[Why], named: bool) -> str:
    return f"where the amount of `{whys[0].name}` is beyond what a range can hold"


def _counter(whys: Sequence[Why], named: bool) -> str:
    first = whys[0]
    if not first.name:
        return "in a pool whose shared counters are overdrawn"
    needs = sorted({why.wanted for why in whys}, key=Quantity.parse)
    least = needs[0] if len(needs) == 1 else f"at least {needs[0]}"
    return f"short of counter `{first.name}` ({first.left} left, {least} needed)"


def _tainted(whys: Sequence[Why], named: bool) -> str:
    taints = sorted({f"`{why.taint}`{_by(why)}" for why in whys if why.taint})
    return (
        f"{TEXTS[Reason.TAINTED][0]} ({joined(taints, _MOST_VALUES)})" if taints else TEXTS[Reason.TAINTED][0]
    )


def _by(why: Why) -> str:
    """Who tainted the device, when it was not its driver."""
    return f" by rule `{why.rule}`" if why.rule else ""


def _lacks(whys: Sequence[Why], named: bool) -> str:
    return f"without {whys[0].name} (a constraint needs it)"


def _conflict(whys: Sequence[Why], named: bool) -> str:
    first = whys[0]
    values = joined(sorted({why.value for why in whys}), _MOST_VALUES)
    peers = joined(list(dict.fromkeys(peer for why in whys for peer in why.peers)), _MOST_VALUES)
    rule = f"different {first.name}" if first.distinct else f"same {first.name} = {first.expected}"
    verb = "taken by" if first.distinct else "like"
    by = f", {verb} {peers}" if named and peers else ""
    return f"with {first.name.rpartition('/')[2]} {values} (constraint: {rule}{by})"


def _leads_nowhere(whys: Sequence[Why], named: bool) -> str:
    requests = _requests(whys)
    return f"tried, but then {requests} finds nothing" if requests else TEXTS[Reason.LEADS_NOWHERE][0]


def _node_selector(whys: Sequence[Why], named: bool) -> str:
    return "with a node selector of several terms"


def _binding_conditions(whys: Sequence[Why], named: bool) -> str:
    return "with binding conditions (feature gate DRADeviceBindingConditions is off)"


def _counters_off(whys: Sequence[Why], named: bool) -> str:
    return "drawing from shared counters (feature gate DRAPartitionableDevices is off)"


def _plainly(reason: Reason) -> Phrase:
    return lambda whys, named: TEXTS[reason][0]


PHRASES: dict[Reason, Phrase] = {
    **{reason: _plainly(reason) for reason in Reason},
    Reason.UNSUITED: _unsuited,
    Reason.BROKEN_SELECTOR: _broken,
    Reason.IN_USE: _in_use,
    Reason.TAKEN_HERE: _taken_here,
    Reason.CAPACITY_MISSING: _missing,
    Reason.CAPACITY_POLICY: _policy,
    Reason.CAPACITY_SHORT: _short,
    Reason.CAPACITY_UNREPRESENTABLE: _unrepresentable,
    Reason.COUNTER_SHORT: _counter,
    Reason.TAINTED: _tainted,
    Reason.ATTRIBUTE_MISSING: _lacks,
    Reason.CONSTRAINT: _conflict,
    Reason.NODE_SELECTOR: _node_selector,
    Reason.BINDING_CONDITIONS: _binding_conditions,
    Reason.COUNTERS_OFF: _counters_off,
    Reason.LEADS_NOWHERE: _leads_nowhere,
}
"""How each reason is put into words, after a number of devices."""

_ABOUT: dict[Reason, Callable[[Why], tuple[object, ...]]] = {
    Reason.UNSUITED: lambda why: (why.owner if why.owner.startswith("class ") else why.condition,),
    Reason.BROKEN_SELECTOR: lambda why: (why.expression, why.error),
    Reason.CAPACITY_SHORT: lambda why: (why.name, why.is_total, why.wanted),
    Reason.CAPACITY_POLICY: lambda why: (why.name, why.left),
    Reason.CAPACITY_MISSING: lambda why: (why.name,),
    Reason.COUNTER_SHORT: lambda why: (why.name, why.left),
    Reason.ATTRIBUTE_MISSING: lambda why: (why.name,),
    Reason.CONSTRAINT: lambda why: (why.name, why.distinct, "" if why.distinct else why.expected),
}


def tally(accounts: Sequence[Account], *, named: bool) -> list[str]:
    """Refused devices as phrases, the most frequent first."""
    return [f"{len(heap)} {PHRASES[_reason(heap)](_whys(heap), named)}" for heap in _heaps(accounts)]


def roll(accounts: Sequence[Account]) -> list[str]:
    """The same, with the names of devices instead of their number where these are few."""
    said = []
    for heap in _heaps(accounts):
        names = [account.device.device for account in heap]
        who = joined(names) if len(names) <= _FEW else f"{len(names)} devices"
        said.append(f"{who} {PHRASES[_reason(heap)](_whys(heap), True)}")
    return said


def _heaps(accounts: Sequence[Account]) -> list[list[Account]]:
    """Accounts that say the same, the largest heap first."""
    heaps: dict[tuple[object, ...], list[Account]] = {}
    for account in accounts:
        if account.why is not None:
            about = _ABOUT.get(account.why.reason)
            key = (account.why.reason, *(about(account.why) if about else ()))
            heaps.setdefault(key, []).append(account)
    return sorted(heaps.values(), key=lambda heap: (-len(heap), _RANK[_reason(heap)]))


def _whys(heap: Sequence[Account]) -> list[Why]:
    return [account.why for account in heap if account.why is not None]


def _reason(heap: Sequence[Account]) -> Reason:
    return _whys(heap)[0].reason


def of_claim(claim: str) -> str:
    """Which claim a request is of, if that needs saying; claims of a pod share its namespace."""
    return f" (claim {claim.rpartition('/')[2]})" if claim else ""


def condition_text(condition: str) -> str:
    """A selector, or a part of one, short enough to stand in a sentence."""
    return plain(short_form(condition), LONGEST)


def error_line(error: str) -> str:
    """The first line of an error; what follows is for machines."""
    return plain(error.splitlines()[0] if error.strip() else "unknown error", 2 * LONGEST)


def flaw_text(flaw: PoolFlaw, *, named: bool) -> str:
    """A pool that lends nothing, and why."""
    pool = f"pool {flaw.driver}/{flaw.pool if named else flaw.pattern}"
    if flaw.reason is Reason.POOL_INCOMPLETE:
        slices = f"{flaw.published} of {plural(flaw.expected, 'slice')}"
        return f"{pool} is incomplete: {slices}, generation {flaw.generation}"
    if flaw.reason is Reason.COUNTERS_OFF:
        return f"{pool} has partitions (feature gate DRAPartitionableDevices is off)"
    return f"{pool} is invalid: {flaw.text}" if flaw.text else f"{pool} is invalid"


def nearest_text(nearest: Nearest, expression: str, *, named: bool) -> str:
    """How near the nearest device comes to a selector."""
    who = nearest.device.device if named else "one"
    what = nearest.value if nearest.is_amount else f"{nearest.subject} {nearest.value}"
    has = f"has {what}" if nearest.value else f"has no {nearest.subject}"
    if nearest.condition == expression:
        return f"nearest: {who} {has}"
    condition = f"`{condition_text(nearest.condition)}`"
    failing = f"meets all but {condition}" if nearest.all_but else f"fails {condition} and more"
    return f"nearest: {who} {failing}" + (f", {has}" if nearest.subject else "")


def obstacle_text(why: Why) -> str:
    """What stood in the way of a whole alternative; empty where its devices tell it."""
    match why.reason:
        case Reason.TOO_MANY_DEVICES:
            return f"the claim comes to {why.wanted} devices, but can hold at most {why.left}"
        case Reason.POOL_INCOMPLETE | Reason.POOL_INVALID:
            return "all devices are asked for, but not all can be seen"
        case Reason.TOO_FEW if why.wanted:
            return f"{TEXTS[Reason.TOO_FEW][0]}: {why.wanted} needed, {why.left} to be had"
        case Reason.CONSTRAINT:
            kind = "different" if why.distinct else "the same"
            return f"too few devices have {kind} {why.name}"
        case Reason.COUNTER_SHORT:
            return f"counter `{why.name}` has {why.left} left, {why.wanted} needed"
        case _:
            return ""
