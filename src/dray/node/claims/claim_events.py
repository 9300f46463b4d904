"""Events about the claims of a pod, deduplicated and short.

Attempts repeat without limit, and drivers put changing numbers into their error messages; neither deserves a
new event. The last event of a pod is recorded again only after a different one.
"""

from __future__ import annotations

import re
from typing import Final

from dray.client.events import EventRecorder, InvolvedObject, truncate_text
from dray.node.claims.outcomes import ClaimsPending, ClaimsRefused
from dray.node.claims.record import ClaimUser, RecordedClaim

PREPARE_FAILED: Final = "FailedPrepareDynamicResources"
UNPREPARE_FAILED: Final = "FailedUnprepareDynamicResources"
DEVICES_ABANDONED: Final = "DevicesAbandoned"
CLAIMS_IGNORED: Final = "ClaimsIgnored"

MAX_NOTE_BYTES: Final = 400
"""Limit of an event's message; the driver's log has the rest."""

_NUMBERS: Final = re.compile(
    r"\b(?:0x[0-9a-f]+|[0-9a-f]*[0-9][0-9a-f]{7,}|[0-9]{3,}|[0-9.]+(?:ns|us|µs|ms|s|m|h))\b", re.IGNORECASE
)
"""Addresses, ids, amounts and times, which differ between repetitions of one error. Not `gpu-1`."""


class PodClaimEvents:
    """Records events of pods, each once until it changes."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._last_recorded: dict[str, tuple[str, str]] = {}

    def record_prepare_failure(self, user: ClaimUser, outcome: ClaimsRefused | ClaimsPending) -> None:
        """Record that an attempt to prepare failed."""
        self._record_once(user, PREPARE_FAILED, outcome.message)

    def record_release_failure(self, user: ClaimUser, outcome: ClaimsPending) -> None:
        """Record that an attempt to release failed."""
        self._record_once(user, UNPREPARE_FAILED, outcome.message)

    def record_claims_ignored(self, user: ClaimUser) -> None:
        """Record that a pod starts without the devices of its claims."""
        message = "the agent of this node does not prepare claims: containers start without their devices"
        self._record_once(user, CLAIMS_IGNORED, message)

    def record_abandoned(self, recorded: RecordedClaim) -> None:
        """Record that devices were abandoned because an annotation asked for it."""
        drivers = ", ".join(part.driver for part in recorded.parts)
        message = f"devices of claim {recorded} were abandoned as requested; driver {drivers} still has them"
        for user in recorded.leaving:
            self._record_once(user, DEVICES_ABANDONED, message)

    def forget(self, pod_uid: str) -> None:
        """Forget the last event of a pod."""
        self._last_recorded.pop(pod_uid, None)

    def _record_once(self, user: ClaimUser, reason: str, message: str) -> None:
        note = truncate_text(" ".join(message.split()), MAX_NOTE_BYTES)
        key = (reason, _NUMBERS.sub("#", note))
        if self._last_recorded.get(user.uid) != key:
            self._last_recorded[user.uid] = key
            self._recorder.record(_build_subject(user), reason, note, warning=True)


def _build_subject(user: ClaimUser) -> InvolvedObject:
    return InvolvedObject("v1", "Pod", user.namespace, user.name, user.uid)
