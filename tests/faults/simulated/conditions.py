"""The conditions of a schedule: how often messages are late or lost, stores fail and drivers refuse.

Theory of operation: rates are zero in calm times; a fault raises some of them for a while. A rate of zero
draws nothing, so that calm times cost nothing. Most messages are quick, a few take much longer: this is what
reorders the requests of different clients.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from dray.client.transport import TransportRequest
from dray.node.plugins.driver_interface import DriverCallFault


@dataclass
class FaultRates:
    """The rates of one schedule, which faults change, and how often each fault has happened."""

    random: Random
    slowness: float = 0.0
    """The longest time of a message in seconds."""
    loss: float = 0.0
    cuts: float = 0.0
    store_errors: float = 0.0
    hidden_outcomes: float = 0.0
    lag: float = 0.0
    driver_faults: float = 0.0
    happened: Counter[str] = field(default_factory=Counter)

    def calm(self) -> None:
        """End every fault."""
        self.slowness = self.loss = self.cuts = self.store_errors = 0.0
        self.hidden_outcomes = self.lag = self.driver_faults = 0.0

    def _occurs(self, rate: float, name: str) -> bool:
        if not rate or self.random.random() >= rate:
            return False
        self.happened[name] += 1
        return True

    # --- the network ---

    def draw_delay(self) -> float:
        drawn = self.random.random()
        if drawn < 0.7 or not self.slowness:
            return 0.002 * drawn
        return self.slowness * (drawn - 0.7) ** 2 * 11

    def loses_request(self, request: TransportRequest) -> bool:
        return self._occurs(self.loss, "request lost")

    def loses_response(self, request: TransportRequest) -> bool:
        return self._occurs(self.loss, "response lost")

    def cuts_stream(self) -> bool:
        return self._occurs(self.cuts, "watch cut")

    # --- the store ---

    def draw_lag(self) -> float:
        return self.lag * self.random.random() if self.lag else 0.0

    def refuses_txn(self) -> bool:
        return self._occurs(self.store_errors, "store refused")

    def hides_outcome(self) -> bool:
        return self._occurs(self.hidden_outcomes, "store outcome unknown")

    def cuts_watch(self) -> bool:
        return self._occurs(self.store_errors, "store watch cut")

    # --- drivers ---

    def draw_fault(self) -> DriverCallFault | None:
        if not self._occurs(self.driver_faults, "driver call failed"):
            return None
        return DriverCallFault.NO_ANSWER if self.random.random() < 0.5 else DriverCallFault.REFUSED
