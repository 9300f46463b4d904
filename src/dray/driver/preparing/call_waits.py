"""Waits inside of calls to prepare: an agent that is refused calls again much later than waiting would take.

Theory of operation: a kubelet repeats a call that failed only after 60 to 90 seconds. Where the cause is one
that passes, such as a device that is about to be given back, the driver tries again inside of the call. It
waits as long as the caller waits: at most 30 seconds and at most two thirds of the time that the caller has
left, so that the work itself has the rest (kubelets give 45 seconds), and not at all once the caller has hung
up. Nothing is held meanwhile, neither the lock of the claim nor a thread: an unprepare of the same claim, or
of the one that has the device, goes ahead and wakes the calls that wait.

The number of waiting claims is limited; beyond it, calls fail at once, as if there was no time left.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from dray.driver.preparing.claim_conversion import PrepareDelayedError

MAX_WAIT_SECONDS: Final = 30.0
"""The longest wait of a call for one claim."""
MAX_WAITING_CLAIMS: Final = 512
_SHARE_OF_DEADLINE: Final = 2 / 3
_RETRY_SECONDS: Final = 1.0
"""How often to try again when nothing happens in this process; another one may have given the device back."""


class AgentCall:
    """A call of an agent: whether the agent still waits for the answer, and until when claims may wait."""

    def __init__(self, wait_seconds: float = 0.0) -> None:
        self.started_at = asyncio.get_running_loop().time()
        self.wait_until = self.started_at + wait_seconds
        self.hung_up = False
        """Whether the agent has cancelled the call, or the deadline has passed."""


class CallWaits:
    """The claims of calls that wait for something to change."""

    def __init__(self) -> None:
        self.max_seconds = MAX_WAIT_SECONDS
        self._changed = asyncio.Event()
        self._stopped = False
        self.count = 0
        """How many claims wait."""

    def begin_call(self, remaining_seconds: float | None) -> AgentCall:
        """Begin a call; `remaining_seconds` is the time until its deadline, None when it has none."""
        seconds = self.max_seconds
        if remaining_seconds is not None:
            seconds = min(seconds, remaining_seconds * _SHARE_OF_DEADLINE)
        return AgentCall(seconds)

    def notify_change(self) -> None:
        """Let all waiting claims try again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def stop(self) -> None:
        """End all waits: the driver ends."""
        self._stopped = True
        self.notify_change()

    async def wait(self, call: AgentCall, delay: PrepareDelayedError) -> bool:
        """Wait until it is worth trying again; returns False when it is not."""
        loop = asyncio.get_running_loop()
        limit = min(call.wait_until, call.started_at + delay.max_wait_seconds)
        left = limit - loop.time()
        if left <= 0 or delay.min_wait_seconds > left or self.count >= MAX_WAITING_CLAIMS:
            return False
        if self._is_over(call):
            return False
        self.count += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(_RETRY_SECONDS, left)):
                    await self._changed.wait()
        finally:
            self.count -= 1
        return not self._is_over(call)

    def _is_over(self, call: AgentCall) -> bool:
        return self._stopped or call.hung_up
