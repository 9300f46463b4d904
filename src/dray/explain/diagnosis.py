"""What the beats add up to: a diagnosis, as values.

A diagnosis has one story for all nodes that look alike. A story tells what was found, where the search
ended, and there, alternative by alternative and device by device, the first rule that said no. Devices and
claims go by name here; in a story of several nodes the names are those of the first one.

Rules for this file: values only. The fields of `RefusalDetails` and its companions are the keys of the
document, so they are only ever added to.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from dray.allocator.refusals import RefusalReason


class DiagnosisPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base of what a diagnosis is made of."""


class DiagnosisVerdict(StrEnum):
    """The answer for the whole question."""

    FITS = "Fits"
    REFUSED = "DoesNotFit"
    UNKNOWN = "Unknown"
    FAULTY = "Faulty"


class NodeOutcome(StrEnum):
    """The answer of one node."""

    FITS = "Fits"
    REFUSED = "DoesNotFit"
    GAVE_UP = "GaveUp"
    FAULTED = "Faulted"


class DeviceName(DiagnosisPart, frozen=True):
    """A device as the cluster knows it."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class RefusalDetails(DiagnosisPart, frozen=True):
    """One no with everything a sentence about it needs; what does not apply is empty.

    `owner` is who brought a selector (`class gpu`, `request gpu`), `condition` the part of it that is false,
    `subject` and `value` what that part looks at and what the device has. `request` (and its `claim`, when
    that is another one) is who of the same pod took a device. `name` is an attribute, capacity or counter,
    with amounts as quantities. `rule` is the DeviceTaintRule behind a taint. `expected` is what earlier
    devices pin, `peers` which ones do.
    """

    reason: RefusalReason
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


class DeviceOutcome(DiagnosisPart, frozen=True):
    """What became of one device at one point; no `why` when it was found."""

    device: DeviceName
    why: RefusalDetails | None = None


class FoundDevice(DiagnosisPart, frozen=True):
    """A device that a request got, and the devices before it that it did not get."""

    claim: str
    request: str
    label: str
    device: DeviceName
    alternative: int = 0
    consumed: dict[str, str] = {}
    admin: bool = False
    every: bool = False
    passed_over: tuple[DeviceOutcome, ...] = ()


class NearestDevice(DiagnosisPart, frozen=True):
    """The device that comes nearest to a selector: what it fails, and what it has there.

    `all_but` says that it meets every other condition of the selector.
    """

    device: DeviceName
    condition: str
    subject: str = ""
    value: str = ""
    is_amount: bool = False
    all_but: bool = False


class FailedAttempt(DiagnosisPart, frozen=True):
    """An alternative that could not be had: what stood in its way as a whole, or device by device."""

    claim: str
    request: str
    label: str
    device_class: str
    count: int
    found: int = 0
    every: bool = False
    obstacle: RefusalDetails | None = None
    devices: tuple[DeviceOutcome, ...] = ()
    nearest: NearestDevice | None = None


class PoolFlaw(DiagnosisPart, frozen=True):
    """A pool that lends nothing; in `pattern` the name of the node is `<node>`."""

    driver: str
    pool: str
    pattern: str
    reason: RefusalReason
    published: int = 0
    expected: int = 0
    generation: int = 0
    text: str = ""


class NodeReport(DiagnosisPart, frozen=True):
    """What happened on nodes that look alike, the first by name first.

    `attempts` are the alternatives at which the search ended; for a node that fits, those it had to leave
    behind. `untried` are requests nobody came to. `fault` is the device that could not be judged. For a
    search that was given up, `seconds` of work tell how long it went on, `most_found` how many of the
    `wanted` devices it found at once, `stuck_at` the request it found none for then.
    """

    nodes: tuple[str, ...]
    outcome: NodeOutcome
    steps: int
    found: tuple[FoundDevice, ...] = ()
    attempts: tuple[FailedAttempt, ...] = ()
    untried: tuple[str, ...] = ()
    pools: tuple[PoolFlaw, ...] = ()
    fault: DeviceOutcome | None = None
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


class ClaimFault(DiagnosisPart, frozen=True):
    """A claim that no node could ever answer: which one, where in it, why."""

    claim: str
    field: str
    text: str


class Hint(DiagnosisPart, frozen=True):
    """A change that helps; the search was run with it and found devices on these nodes."""

    kind: str
    text: str
    nodes: tuple[str, ...]
    claim: str = ""
    request: str = ""


class Diagnosis(DiagnosisPart, frozen=True):
    """The whole answer: stories with the best or closest nodes first, and what would help."""

    verdict: DiagnosisVerdict
    pod: str = ""
    claims: tuple[str, ...] = ()
    fault: ClaimFault | None = None
    node_reports: tuple[NodeReport, ...] = ()
    hints: tuple[Hint, ...] = ()

    @property
    def node_count(self) -> int:
        """How many nodes were looked at."""
        return sum(len(story.nodes) for story in self.node_reports)

    @property
    def best(self) -> NodeReport | None:
        """The story of the best node that fits."""
        return self.node_reports[0] if self.verdict is DiagnosisVerdict.FITS else None
