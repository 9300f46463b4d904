"""What is missing until a pod's claims are prepared, or given back: from the record to sentences."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final

from dray.node.claims.outcomes import GONE, Ready, Reason, Waiting
from dray.node.claims.plan import Driver, Wanted
from dray.node.claims.record import Record, Stage

ABANDON: Final = "dray.dev/abandon-devices"
"""On a pod or a node, with the value `true`: forget devices that no driver takes back."""


def readiness(record: Record, wanted: Iterable[Wanted]) -> Ready | Waiting:
    """Whether claims are prepared by all their drivers, and who has still something to do."""
    missing: dict[str, Reason] = {}
    for each in wanted:
        held = record.claim(each.uid)
        for part in held.parts if held is not None else ():
            if part.state is Stage.PREPARED:
                continue
            if part.error:
                reason = Reason.DEVICE_GONE if GONE in part.error.lower() else Reason.PREPARE_FAILED
                cause = _cause(part.error, part.driver, each)
                missing[f"driver {part.driver} did not prepare claim {each}: {cause}"] = reason
            else:
                why = f"driver {part.driver} of claim {each} is not registered on this node"
                missing[why] = Reason.DRIVER_MISSING
    return _waiting(missing) or Ready()


def remainder(record: Record, pod_uid: str, present: Set[Driver]) -> Waiting | None:
    """What drivers still have of the claims that a pod was the last to use."""
    missing: dict[str, Reason] = {}
    for held in record.left_by(pod_uid):
        for part in held.parts:
            if Driver(part.driver, held.classic) not in present:
                why = (
                    f"driver {part.driver} is not registered on this node and still has claim {held}; "
                    f"start it again, or give up the devices: annotate pod or node with {ABANDON}=true"
                )
                missing[why] = Reason.DRIVER_MISSING
            else:
                cause = _cause(part.error, part.driver, held) or "it did not answer"
                missing[f"driver {part.driver} did not let go of claim {held}: {cause}"] = (
                    Reason.UNPREPARE_FAILED
                )
    return _waiting(missing)


def _cause(error: str, driver: str, claim: object) -> str:
    """What went wrong, without the driver and the claim: the sentence around it has named them."""
    for name in (f"driver `{driver}`: ", f"driver {driver}: ", f"claim {claim}: "):
        error = error.removeprefix(name)
    return error


def _waiting(missing: dict[str, Reason]) -> Waiting | None:
    if not missing:
        return None
    return Waiting(next(iter(missing.values())), "; ".join(missing))
