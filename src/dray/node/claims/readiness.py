"""What is missing until a pod's claims are prepared, or given back: from the record to sentences."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final

from dray.node.claims.outcomes import DEVICE_GONE_TEXT, ClaimsPending, ClaimsReady, NotReadyReason
from dray.node.claims.plan import AdmittedClaim, DriverKey
from dray.node.claims.record import ClaimsRecord, NodeClaimStage

ABANDON_ANNOTATION: Final = "dray.dev/abandon-devices"
"""On a pod or a node, with the value `true`: forget devices that no driver takes back."""


def check_prepared(record: ClaimsRecord, admitted: Iterable[AdmittedClaim]) -> ClaimsReady | ClaimsPending:
    """Whether claims are prepared by all their drivers, and who has still something to do."""
    missing: dict[str, NotReadyReason] = {}
    for each in admitted:
        held = record.find_claim(each.uid)
        for part in held.parts if held is not None else ():
            if part.state is NodeClaimStage.PREPARED:
                continue
            if part.error:
                reason = (
                    NotReadyReason.DEVICE_GONE
                    if DEVICE_GONE_TEXT in part.error.lower()
                    else NotReadyReason.PREPARE_FAILED
                )
                cause = _strip_prefixes(part.error, part.driver, each)
                missing[f"driver {part.driver} did not prepare claim {each}: {cause}"] = reason
            else:
                why = f"driver {part.driver} of claim {each} is not registered on this node"
                missing[why] = NotReadyReason.DRIVER_MISSING
    return _build_pending(missing) or ClaimsReady()


def check_released(record: ClaimsRecord, pod_uid: str, registered: Set[DriverKey]) -> ClaimsPending | None:
    """What drivers still have of the claims that a pod was the last to use."""
    missing: dict[str, NotReadyReason] = {}
    for held in record.find_released_by(pod_uid):
        for part in held.parts:
            if DriverKey(part.driver, held.classic) not in registered:
                why = (
                    f"driver {part.driver} is not registered on this node and still has claim {held}; "
                    "start it again, or give up the devices: annotate pod or node with "
                    f"{ABANDON_ANNOTATION}=true"
                )
                missing[why] = NotReadyReason.DRIVER_MISSING
            else:
                cause = _strip_prefixes(part.error, part.driver, held) or "it did not answer"
                missing[f"driver {part.driver} did not let go of claim {held}: {cause}"] = (
                    NotReadyReason.UNPREPARE_FAILED
                )
    return _build_pending(missing)


def _strip_prefixes(error: str, driver: str, claim: object) -> str:
    """What went wrong, without the driver and the claim: the sentence around it has named them."""
    for name in (f"driver `{driver}`: ", f"driver {driver}: ", f"claim {claim}: "):
        error = error.removeprefix(name)
    return error


def _build_pending(missing: dict[str, NotReadyReason]) -> ClaimsPending | None:
    if not missing:
        return None
    return ClaimsPending(next(iter(missing.values())), "; ".join(missing))
