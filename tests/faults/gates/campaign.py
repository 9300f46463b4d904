"""The rounds of R-15 on a node: gates go, processes go, and what pods have is compared byte for byte."""

from __future__ import annotations

import random
import signal
from collections import Counter
from dataclasses import dataclass, field

from tests.faults.gates.place import EVERYTHING, FEATURES, USED, Place, Seen, either, share, using


@dataclass
class Tally:
    """What was done, and what was seen that should not be."""

    rounds: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def sound(self) -> bool:
        return bool(self.rounds) and not self.wrong

    def __str__(self) -> str:
        done = ", ".join(f"{count} times {what}" for what, count in sorted(self.rounds.items()))
        return f"{done}; {len(self.wrong)} differences"


class Campaign:
    """Disturbs a place in which a pod of each feature runs."""

    def __init__(self, place: Place, seed: int = 0) -> None:
        self._place, self._chance = place, random.Random(seed)
        self.tally = Tally()
        self._before = Seen()

    def begin(self) -> None:
        self._place.furnish()
        self._place.works()
        self._before = self._place.seen()
        counts = [len(part) for part in vars(self._before).values()]
        assert counts == [*[len(USED)] * 4, 2 * len(USED) + 1], counts

    def without(self, where: str, *gates: str) -> None:
        """Gates go in the server, the scheduler or both; agent and driver are killed; all is as it was."""
        place = self._place
        what = f"{where} without {', '.join(gates) if gates != EVERYTHING else 'everything'}"
        if where != "scheduler":
            place.server(*gates)
        if where != "server":
            place.scheduler(*gates)
        shows = where == "scheduler" or "DynamicResourceAllocation" not in gates
        self._compare(what, shows=shows)
        place.agent(self._chance.choice((signal.SIGKILL, signal.SIGTERM)))
        place.plugin()
        place.works()
        self._compare(f"{what}, agent and driver killed", shows=shows)

    def again(self) -> None:
        """Everything is on again, and new claims of all features are served."""
        place = self._place
        place.server()
        place.scheduler()
        for name, wanted, device in (("late-either", either, "gpu-1"), ("late-share", share, "eth0")):
            place.kubectl("create", "-f", "-", given=[wanted(name), using(name)])
            place.told(name, device)
        for name in ("late-either", "late-share"):
            place.forget(name)
        self._compare("on again")

    def each(self) -> None:
        """Every feature goes and comes in every place."""
        for gate in FEATURES:
            for where in ("server", "scheduler", "both"):
                self.without(where, gate)
                self.again()
        self.without("both", *EVERYTHING)
        self.again()

    def _compare(self, what: str, *, shows: bool = True) -> None:
        self.tally.rounds[what.split(" without")[0]] += 1
        now, before = self._place.seen(claims=shows), self._before if shows else self._before.on_node
        for name, was in vars(before).items():
            found = getattr(now, name)
            different = sorted(key for key in was.keys() | found.keys() if was.get(key) != found.get(key))
            self.tally.wrong += [
                f"{what}: {name} of {key}: {found.get(key)!r}, before {was.get(key)!r}" for key in different
            ]
