"""What people hear about the claims of a pod: one event for each thing that is the case, and brief.

An attempt is repeated for as long as it takes, and drivers put numbers into their complaints; neither is
news. What was told last about a pod is told again only after something else was the case.
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
"""Bytes of an event; who wants more asks the driver's log."""

_NUMBERS: Final = re.compile(
    r"\b(?:0x[0-9a-f]+|[0-9a-f]*[0-9][0-9a-f]{7,}|[0-9]{3,}|[0-9.]+(?:ns|us|µs|ms|s|m|h))\b", re.IGNORECASE
)
"""Addresses, identifiers, amounts and times: what differs from one complaint to the next. Not `gpu-1`."""


class PodClaimEvents:
    """Tells the events of pods, each once."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._last_recorded: dict[str, tuple[str, str]] = {}

    def record_prepare_failure(self, user: ClaimUser, outcome: ClaimsRefused | ClaimsPending) -> None:
        """Preparing did not succeed this time."""
        self._record_once(user, PREPARE_FAILED, outcome.message)

    def record_release_failure(self, user: ClaimUser, outcome: ClaimsPending) -> None:
        """Giving back did not succeed this time."""
        self._record_once(user, UNPREPARE_FAILED, outcome.message)

    def record_claims_ignored(self, user: ClaimUser) -> None:
        """A pod starts without what its claims promise."""
        what = "the agent of this node leaves claims alone: containers start without what they promise"
        self._record_once(user, CLAIMS_IGNORED, what)

    def record_abandoned(self, held: RecordedClaim) -> None:
        """Devices were forgotten because a person said so."""
        drivers = ", ".join(part.driver for part in held.parts)
        what = f"devices of claim {held} were forgotten as asked; driver {drivers} did not take them back"
        for user in held.leaving:
            self._record_once(user, DEVICES_ABANDONED, what)

    def forget(self, pod_uid: str) -> None:
        """Nothing is the case any more."""
        self._last_recorded.pop(pod_uid, None)

    def _record_once(self, user: ClaimUser, reason: str, message: str) -> None:
        note = truncate_text(" ".join(message.split()), MAX_NOTE_BYTES)
        said = (reason, _NUMBERS.sub("#", note))
        if self._last_recorded.get(user.uid) != said:
            self._last_recorded[user.uid] = said
            self._recorder.record(_build_subject(user), reason, note, warning=True)


def _build_subject(user: ClaimUser) -> InvolvedObject:
    return InvolvedObject("v1", "Pod", user.namespace, user.name, user.uid)
