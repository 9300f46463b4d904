"""Checks whether the claims of a pod are prepared or released, with messages for those that are not."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final

from dray.node.claims.outcomes import DEVICE_GONE_TEXT, ClaimsPending, ClaimsReady, NotReadyReason
from dray.node.claims.plan import AdmittedClaim, DriverKey
from dray.node.claims.record import ClaimsRecord, NodeClaimStage

ABANDON_ANNOTATION: Final = "dray.dev/abandon-devices"
"""On a pod or a node, with the value `true`: forget devices that no driver unprepares."""


def check_prepared(record: ClaimsRecord, admitted: Iterable[AdmittedClaim]) -> ClaimsReady | ClaimsPending:
    """Return whether all drivers have prepared the claims, or which have not and why."""
    missing: dict[str, NotReadyReason] = {}
    for each in admitted:
        recorded = record.find_claim(each.uid)
        for part in recorded.parts if recorded is not None else ():
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
    """Return which drivers have not unprepared the claims that a pod used last; None if all have."""
    missing: dict[str, NotReadyReason] = {}
    for recorded in record.find_released_by(pod_uid):
        for part in recorded.parts:
            if DriverKey(part.driver, recorded.classic) not in registered:
                why = (
                    f"driver {part.driver} is not registered on this node and still has claim {recorded}; "
                    "start it again, or give up the devices: annotate pod or node with "
                    f"{ABANDON_ANNOTATION}=true"
                )
                missing[why] = NotReadyReason.DRIVER_MISSING
            else:
                cause = _strip_prefixes(part.error, part.driver, recorded) or "it did not answer"
                missing[f"driver {part.driver} did not unprepare claim {recorded}: {cause}"] = (
                    NotReadyReason.UNPREPARE_FAILED
                )
    return _build_pending(missing)


def _strip_prefixes(error: str, driver: str, claim: object) -> str:
    """Remove the driver and the claim from an error; the message around it names them."""
    for name in (f"driver `{driver}`: ", f"driver {driver}: ", f"claim {claim}: "):
        error = error.removeprefix(name)
    return error


def _build_pending(missing: dict[str, NotReadyReason]) -> ClaimsPending | None:
    if not missing:
        return None
    return ClaimsPending(next(iter(missing.values())), "; ".join(missing))
