"""What people hear about the claims of a pod: one event for each thing that is the case, and brief.

An attempt is repeated for as long as it takes, and drivers put numbers into their complaints; neither is
news. What was told last about a pod is told again only after something else was the case.
"""

from __future__ import annotations

import re
from typing import Final

from dray.client.events import EventRecorder, Subject, shortened
from dray.node.claims.outcomes import Refusal, Waiting
from dray.node.claims.record import Held, User

NOT_PREPARED: Final = "FailedPrepareDynamicResources"
NOT_GIVEN_BACK: Final = "FailedUnprepareDynamicResources"
ABANDONED: Final = "DevicesAbandoned"
IGNORED: Final = "ClaimsIgnored"

BRIEF: Final = 400
"""Bytes of an event; who wants more asks the driver's log."""

_NUMBERS: Final = re.compile(
    r"\b(?:0x[0-9a-f]+|[0-9a-f]*[0-9][0-9a-f]{7,}|[0-9]{3,}|[0-9.]+(?:ns|us|µs|ms|s|m|h))\b", re.IGNORECASE
)
"""Addresses, identifiers, amounts and times: what differs from one complaint to the next. Not `gpu-1`."""


class Telling:
    """Tells the events of pods, each once."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._last: dict[str, tuple[str, str]] = {}

    def failed(self, user: User, answer: Refusal | Waiting) -> None:
        """Preparing did not succeed this time."""
        self._tell(user, NOT_PREPARED, answer.message)

    def blocked(self, user: User, answer: Waiting) -> None:
        """Giving back did not succeed this time."""
        self._tell(user, NOT_GIVEN_BACK, answer.message)

    def ignored(self, user: User) -> None:
        """A pod starts without what its claims promise."""
        what = "the agent of this node leaves claims alone: containers start without what they promise"
        self._tell(user, IGNORED, what)

    def abandoned(self, held: Held) -> None:
        """Devices were forgotten because a person said so."""
        drivers = ", ".join(part.driver for part in held.parts)
        what = f"devices of claim {held} were forgotten as asked; driver {drivers} did not take them back"
        for user in held.leaving:
            self._tell(user, ABANDONED, what)

    def forget(self, pod_uid: str) -> None:
        """Nothing is the case any more."""
        self._last.pop(pod_uid, None)

    def _tell(self, user: User, reason: str, message: str) -> None:
        note = shortened(" ".join(message.split()), BRIEF)
        said = (reason, _NUMBERS.sub("#", note))
        if self._last.get(user.uid) != said:
            self._last[user.uid] = said
            self._recorder.record(_subject(user), reason, note, warning=True)


def _subject(user: User) -> Subject:
    return Subject("v1", "Pod", user.namespace, user.name, user.uid)
