"""A story as lines: what was found, what was not, and what stood in the way.

A line is a lead and pieces, so that whoever lays out the page can break it between pieces. Devices that are
not of the class somebody asked for are left out of the count: a network card is not a GPU that failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from dray.allocator.refusals import Reason
from dray.explain.diagnosis import Account, Attempt, Found, NodeStory, Outcome
from dray.explain.rendering.refusal_phrases import (
    error_line,
    flaw_text,
    nearest_text,
    obstacle_text,
    of_claim,
    tally,
)
from dray.explain.wording import how_far, plain, plural

_FEW_LABELS = 3


class Line(msgspec.Struct, frozen=True):
    """A lead and what follows it, joined by dots in the middle.

    `depth` is how far the line stands to the right, `hang` how much further what does not fit on it does.
    """

    lead: str
    pieces: tuple[str, ...] = ()
    depth: int = 0
    hang: int = 0

    def __str__(self) -> str:
        return " ".join(filter(None, (self.lead, " · ".join(self.pieces))))


def story_lines(story: NodeStory, *, named: bool, one_claim: bool) -> list[Line]:
    """What to say about the nodes of a story that do not fit."""
    if story.outcome is Outcome.FAULTED and story.fault is not None:
        return list(_fault_lines(story, story.fault, named))
    lines = []
    if story.outcome is Outcome.GAVE_UP:
        lines.append(Line(_given_up(story)))
    lines += _progress(story, one_claim)
    several = len(story.attempts) > 1
    for attempt in story.attempts:
        told = attempt_lines(attempt, named=named, flawed=bool(story.pools))
        lines += under(attempt.request.partition("/")[2], told) if several else told
    lines += [Line(flaw_text(flaw, named=named)) for flaw in story.pools if _matters(flaw.driver, story)]
    return lines or [Line("no devices fit")]


def _given_up(story: NodeStory) -> str:
    """How far a search came that was given up, and what more time might do."""
    if not story.steps and not story.seconds:
        return "not searched, the time went into other nodes: it may fit, a longer --search-timeout may tell"
    came = how_far(story.steps, story.seconds, story.most_found, story.wanted)
    return f"gave up {came}: it may fit, a longer --search-timeout may tell"


def attempt_lines(attempt: Attempt, *, named: bool, flawed: bool = False) -> list[Line]:
    """What stood in the way of one alternative."""
    lines = []
    if attempt.obstacle is not None:
        text = obstacle_text(attempt.obstacle)
        lines += [Line(text)] if text else []
        if attempt.obstacle.reason in _WHOLE:
            return lines
    inside = [account for account in attempt.devices if not _outside(account)]
    if not attempt.devices:
        return lines if lines or flawed else [Line("no driver publishes devices here")]
    if not inside:
        lead = f"no device is in class {attempt.device_class}"
        return lines + _no_match(attempt, lead, attempt.devices, named)
    if all(account.why is not None and account.why.reason is Reason.UNSUITED for account in inside):
        only = {account.why.expression for account in inside if account.why is not None}
        if len(only) == 1:
            return lines + _no_match(attempt, "no device matches", inside, named)
    return [*lines, _tally_line(attempt, inside, named)]


_WHOLE = frozenset({Reason.TOO_MANY_DEVICES, Reason.POOL_INCOMPLETE, Reason.POOL_INVALID})
"""Obstacles that end an alternative before any device is looked at."""


def _tally_line(attempt: Attempt, inside: Sequence[Account], named: bool) -> Line:
    drivers = {account.device.driver for account in inside}
    counting = [a for a in attempt.devices if not _outside(a) or a.device.driver in drivers]
    had = sum(account.why is None for account in counting)
    pieces = tally(counting, named=named)
    if len(counting) == 1 and pieces:
        return Line("the only device:", (pieces[0].partition(" ")[2],))
    if attempt.every:
        return Line(f"all {plural(len(counting), 'device')} are asked for:", tuple(pieces))
    return Line(f"of {plural(len(counting), 'device')}:", (*([f"{had} found"] if had else []), *pieces))


def _no_match(attempt: Attempt, lead: str, refused: Sequence[Account], named: bool) -> list[Line]:
    """Nothing matches: the selector that most devices fail, and the device that comes nearest."""
    failed = [a.why.expression for a in refused if a.why is not None and a.why.expression]
    expression = max(dict.fromkeys(failed), key=failed.count)
    lines = [Line(f"{lead}: {plain(expression)}")]
    if attempt.nearest is not None and attempt.nearest.condition in expression:
        lines.append(Line(nearest_text(attempt.nearest, expression, named=named)))
    return lines


def _outside(account: Account) -> bool:
    """Whether a device is not of the class at all."""
    why = account.why
    return why is not None and why.reason is Reason.UNSUITED and why.owner.startswith("class ")


def _matters(driver: str, story: NodeStory) -> bool:
    """Whether a flawed pool could have helped: its driver has devices of the class, or nobody has."""
    drivers = {a.device.driver for attempt in story.attempts for a in attempt.devices if not _outside(a)}
    return not drivers or driver in drivers or any(attempt.every for attempt in story.attempts)


def _fault_lines(story: NodeStory, fault: Account, named: bool) -> Iterator[Line]:
    why = fault.why
    assert why is not None
    who = fault.device.device if named else "a device"
    if why.reason is Reason.BROKEN_SELECTOR:
        yield Line(f"a selector fails on {who}: {error_line(why.error)}")
        yield Line(f"{why.owner}: {plain(why.expression)}")
    else:
        yield Line(f"the amount of `{why.name}` is beyond what a range can hold on {who}: {why.wanted}")


def _progress(story: NodeStory, one_claim: bool) -> list[Line]:
    """Which requests found devices, and which one did not; nothing when there was only one to find."""
    if not story.attempts:
        return []
    furthest = max(story.attempts, key=lambda attempt: attempt.found)
    several = len(story.attempts) > 1
    had = [(f.claim, f.request, f.label) for f in story.found]
    if not several and not furthest.every:
        own = range(furthest.found)
        had += [(furthest.claim, furthest.request, f"{furthest.request}[{nth}]") for nth in own]
    if not had and not story.untried and not several:
        return []
    request = furthest.request if furthest.every else furthest.label
    request = furthest.request.partition("/")[0] if several else request
    failed = request + ("" if one_claim else of_claim(furthest.claim))
    tail = f": none of {len(story.attempts)} alternatives" if several else ""
    names = ", ".join(story.untried) if one_claim else plural(len(story.untried), "request")
    untried = f" ({names} not tried)" if story.untried else ""
    if not had:
        return [Line(f"{failed} not found{tail}{untried}")]
    return [Line(f"{_labels(had, one_claim)} found, {failed} not{tail}{untried}")]


def _labels(had: Sequence[tuple[str, str, str]], one_claim: bool) -> str:
    """Labels of devices that were found; many of one request are drawn together."""
    groups: dict[str, dict[str, list[str]]] = {}
    for claim, request, label in had:
        groups.setdefault(claim, {}).setdefault(request, []).append(label)
    said = []
    for claim, requests in groups.items():
        texts = [
            " ".join(labels) if len(labels) <= _FEW_LABELS else f"{request}[0..{len(labels) - 1}]"
            for request, labels in requests.items()
        ]
        said.append(" ".join(texts) + ("" if one_claim else of_claim(claim)))
    return " ".join(said)


def under(alternative: str, lines: Sequence[Line]) -> list[Line]:
    """Lines that belong to an alternative, behind its name."""
    if not lines:
        return []
    first = Line(f"{alternative}: {lines[0].lead}", lines[0].pieces, hang=1)
    return [first, *(Line(line.lead, line.pieces, depth=1) for line in lines[1:])]


def found_labels(found: Sequence[Found], one_claim: bool) -> str:
    """Which requests got which devices, on one line."""
    return ", ".join(f"{f.label}{'' if one_claim else of_claim(f.claim)} {f.device.device}" for f in found)


def relevant(found: Found) -> list[Account]:
    """The devices a pick was preferred to, without those that are not of the class."""
    return [account for account in found.passed_over if not _outside(account)]
