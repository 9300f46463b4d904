"""What the beats add up to: a diagnosis, as values.

A diagnosis has one story for all nodes that look alike. A story tells what was found, where the search
ended, and there, alternative by alternative and device by device, the first rule that said no. Devices and
claims go by name here; in a story of several nodes the names are those of the first one.

Rules for this file: values only. The fields of `Why` and its companions are the keys of the document, so
they are only ever added to.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from dray.allocator.refusals import Reason


class Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base of what a diagnosis is made of."""


class Verdict(StrEnum):
    """The answer for the whole question."""

    FITS = "Fits"
    REFUSED = "DoesNotFit"
    UNKNOWN = "Unknown"
    FAULTY = "Faulty"


class Outcome(StrEnum):
    """The answer of one node."""

    FITS = "Fits"
    REFUSED = "DoesNotFit"
    GAVE_UP = "GaveUp"
    FAULTED = "Faulted"


class DeviceName(Told, frozen=True):
    """A device as the cluster knows it."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class Why(Told, frozen=True):
    """One no with everything a sentence about it needs; what does not apply is empty.

    `owner` is who brought a selector (`class gpu`, `request gpu`), `condition` the part of it that is false,
    `subject` and `value` what that part looks at and what the device has. `request` (and its `claim`, when
    that is another one) is who of the same pod took a device. `name` is an attribute, capacity or counter,
    with amounts as quantities. `rule` is the DeviceTaintRule behind a taint. `expected` is what earlier
    devices pin, `peers` which ones do.
    """

    reason: Reason
    owner: str = ""
    expression: str = ""
    condition: str = ""
    subject: str = ""
    value: str = ""
    error: str = ""
    holders: tuple[str, ...] = ()
    claim: str = ""
    request: str = ""
    name: str = ""
    wanted: str = ""
    left: str = ""
    is_total: bool = False
    taint: str = ""
    rule: str = ""
    distinct: bool = False
    expected: str = ""
    peers: tuple[str, ...] = ()


class Account(Told, frozen=True):
    """What became of one device at one point; no `why` when it was found."""

    device: DeviceName
    why: Why | None = None


class Found(Told, frozen=True):
    """A device that a request got, and the devices before it that it did not get."""

    claim: str
    request: str
    label: str
    device: DeviceName
    alternative: int = 0
    consumed: dict[str, str] = {}
    admin: bool = False
    every: bool = False
    passed_over: tuple[Account, ...] = ()


class Nearest(Told, frozen=True):
    """The device that comes nearest to a selector: what it fails, and what it has there.

    `all_but` says that it meets every other condition of the selector.
    """

    device: DeviceName
    condition: str
    subject: str = ""
    value: str = ""
    is_amount: bool = False
    all_but: bool = False


class Attempt(Told, frozen=True):
    """An alternative that could not be had: what stood in its way as a whole, or device by device."""

    claim: str
    request: str
    label: str
    device_class: str
    count: int
    found: int = 0
    every: bool = False
    obstacle: Why | None = None
    devices: tuple[Account, ...] = ()
    nearest: Nearest | None = None


class PoolFlaw(Told, frozen=True):
    """A pool that lends nothing; in `pattern` the name of the node is `<node>`."""

    driver: str
    pool: str
    pattern: str
    reason: Reason
    published: int = 0
    expected: int = 0
    generation: int = 0
    text: str = ""


class NodeStory(Told, frozen=True):
    """What happened on nodes that look alike, the first by name first.

    `attempts` are the alternatives at which the search ended; for a node that fits, those it had to leave
    behind. `untried` are requests nobody came to. `fault` is the device that could not be judged. For a
    search that was given up, `seconds` of work tell how long it went on, `most_found` how many of the
    `wanted` devices it found at once, `stuck_at` the request it found none for then.
    """

    nodes: tuple[str, ...]
    outcome: Outcome
    steps: int
    found: tuple[Found, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    untried: tuple[str, ...] = ()
    pools: tuple[PoolFlaw, ...] = ()
    fault: Account | None = None
    fault_request: str = ""
    seconds: float = 0.0
    most_found: int = 0
    wanted: int = 0
    stuck_at: str = ""

    @property
    def rank(self) -> int:
        """How far down the lists of alternatives the requests had to go; less is better."""
        chosen = {(found.claim, found.request): found.alternative for found in self.found}
        return sum(chosen.values())


class Fault(Told, frozen=True):
    """A claim that no node could ever answer: which one, where in it, why."""

    claim: str
    field: str
    text: str


class Hint(Told, frozen=True):
    """A change that helps; the search was run with it and found devices on these nodes."""

    kind: str
    text: str
    nodes: tuple[str, ...]
    claim: str = ""
    request: str = ""


class Diagnosis(Told, frozen=True):
    """The whole answer: stories with the best or closest nodes first, and what would help."""

    verdict: Verdict
    pod: str = ""
    claims: tuple[str, ...] = ()
    fault: Fault | None = None
    stories: tuple[NodeStory, ...] = ()
    hints: tuple[Hint, ...] = ()

    @property
    def node_count(self) -> int:
        """How many nodes were looked at."""
        return sum(len(story.nodes) for story in self.stories)

    @property
    def best(self) -> NodeStory | None:
        """The story of the best node that fits."""
        return self.stories[0] if self.verdict is Verdict.FITS else None
