"""The diagnosis: the values that an explanation consists of.

A diagnosis has one report for all nodes that look alike. A report says what was found, where the search
ended, and there, alternative by alternative and device by device, the first rule that refused. Devices and
claims go by name here; in a report about several nodes the names are those of the first one.

Rules for this file: values only. The fields of `RefusalDetails` and its companions are the keys of the JSON
document, so fields are only added.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from dray.allocator.refusals import RefusalReason
from dray.allocator.requests import SelectorOwnerKind


class DiagnosisPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base of the parts of a diagnosis."""


class DiagnosisVerdict(StrEnum):
    """The answer for all nodes."""

    FITS = "Fits"
    REFUSED = "DoesNotFit"
    UNKNOWN = "Unknown"
    FAULTY = "Faulty"


class NodeOutcome(StrEnum):
    """The answer for one node."""

    FITS = "Fits"
    REFUSED = "DoesNotFit"
    GAVE_UP = "GaveUp"
    FAULTED = "Faulted"


class DeviceName(DiagnosisPart, frozen=True):
    """The full name of a device."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class RefusalDetails(DiagnosisPart, frozen=True):
    """One refusal with everything a sentence about it needs; fields that do not apply are empty.

    `owner` is the class or request of a selector (`class gpu`, `request gpu`), `condition` the part of it
    that is false, `subject` and `value` the field that this part reads and its value on the device. `request`
    (and its `claim`, when that is another one) is the request of the same pod that took the device. `name` is
    an attribute, capacity or counter, with amounts as quantities. `rule` is the DeviceTaintRule of a taint.
    `expected` is the value that earlier devices pin, `peers` are these devices.
    """

    reason: RefusalReason
    owner: str = ""
    owner_kind: SelectorOwnerKind | None = None
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

    @property
    def is_outside_class(self) -> bool:
        """Whether the device does not belong to the class at all."""
        return self.reason is RefusalReason.UNSUITED and self.owner_kind is SelectorOwnerKind.CLASS


class DeviceOutcome(DiagnosisPart, frozen=True):
    """The outcome for one device at one point; no `why` when it was found."""

    device: DeviceName
    why: RefusalDetails | None = None

    @property
    def is_outside_class(self) -> bool:
        """Whether the device does not belong to the class at all."""
        return self.why is not None and self.why.is_outside_class


class FoundDevice(DiagnosisPart, frozen=True):
    """A device that was allocated to a request, and the devices before it that were passed over."""

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
    """The device that comes closest to a selector: the condition it fails, and its value.

    `all_but` says that it meets every other condition of the selector.
    """

    device: DeviceName
    condition: str
    subject: str = ""
    value: str = ""
    is_amount: bool = False
    all_but: bool = False


class FailedAttempt(DiagnosisPart, frozen=True):
    """An alternative that could not be allocated: what prevents it as a whole, or device by device.

    `request` names the request, or the alternative as `request/subrequest`; for an alternative,
    `alternative_of` and `subrequest` are its parts.
    """

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
    alternative_of: str = ""
    subrequest: str = ""


class PoolFlaw(DiagnosisPart, frozen=True):
    """A pool whose devices cannot be allocated; in `pattern` the name of the node is `<node>`."""

    driver: str
    pool: str
    pattern: str
    reason: RefusalReason
    published: int = 0
    expected: int = 0
    generation: int = 0
    text: str = ""


class NodeReport(DiagnosisPart, frozen=True):
    """The result for nodes that look alike, sorted by name.

    `attempts` are the alternatives at which the search ended; for a node that fits, those it skipped.
    `untried` are requests that the search did not reach. `fault` is the device that could not be evaluated.
    For a search that was given up, `seconds` is its time, `most_found` how many of the `wanted` devices it
    found at once, `stuck_at` the request it found none for then.
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
        """The sum of the positions of the chosen alternatives; less is better."""
        chosen = {(found.claim, found.request): found.alternative for found in self.found}
        return sum(chosen.values())


class ClaimFault(DiagnosisPart, frozen=True):
    """A claim that no node can ever satisfy: which one, which field, why."""

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
    """The whole answer: reports with the best or closest nodes first, and hints."""

    verdict: DiagnosisVerdict
    pod: str = ""
    claims: tuple[str, ...] = ()
    fault: ClaimFault | None = None
    node_reports: tuple[NodeReport, ...] = ()
    hints: tuple[Hint, ...] = ()

    @property
    def node_count(self) -> int:
        """How many nodes were searched."""
        return sum(len(report.nodes) for report in self.node_reports)

    @property
    def best(self) -> NodeReport | None:
        """The report of the best node that fits."""
        return self.node_reports[0] if self.verdict is DiagnosisVerdict.FITS else None
