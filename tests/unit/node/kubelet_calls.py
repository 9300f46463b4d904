"""The calls that drivers get while pods run on a node, as a table: of a kubelet, and of our agent.

A kubelet of Kubernetes 1.37 with containerd made these calls to two drivers, `a` and `b`. A row has the calls
of each driver in their order, separated by commas: `prepare c0 c1` is one call for two claims. What follows
the claims is how the call ended: `refused` in the claim's entry, `omitted` without an entry, `failed` as a
whole, `cancelled` by the caller; without any of these it succeeded. `+` is one call or more like it. `info`
and `registered` are the two calls of a registration.

Decided differences that are not in the rows: our agent calls the drivers of a pod at the same time, a kubelet
one after the other; it repeats failed calls within seconds, a kubelet repeats those to prepare only after 60
to 90 s; and it gives back the claims of a pod that was force-deleted while the agent was down at its start, a
kubelet after 60 s.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

DRIVERS = ("a", "b")


class Call(NamedTuple):
    """One call of a driver, and how it ended; without an outcome it succeeded."""

    verb: str
    claims: tuple[str, ...] = ()
    outcome: str = ""

    def __str__(self) -> str:
        return " ".join((self.verb, *self.claims, *filter(None, (self.outcome,))))


@dataclass(frozen=True)
class Scenario:
    """What happens to pods, and the calls that follow from it."""

    name: str
    what: str
    a: str
    b: str = ""
    kubelet_a: str = ""
    """The calls of a kubelet to driver `a`, when our agent's are decided to be others."""
    why: str = ""
    """Why our agent makes other calls."""

    def get_agent_calls(self) -> Mapping[str, str]:
        return {"a": self.a, "b": self.b}

    def get_kubelet_calls(self) -> Mapping[str, str]:
        return {"a": self.kubelet_a or self.a, "b": self.b}


SCENARIOS = (
    Scenario(
        "s1",
        "three claims, two drivers; run; delete",
        a="prepare c0 c1, unprepare c0 c1",
        b="prepare c2, unprepare c2",
    ),
    Scenario(
        "s2",
        "two pods share a claim",
        a="prepare x, unprepare x",
        kubelet_a="prepare x, prepare x, unprepare x",
        why="a claim that is prepared, or is being prepared, is ready for the next pod without a call",
    ),
    Scenario("s3", "pod ends by itself", a="prepare c0, unprepare c0"),
    Scenario("s4", "prepare: entry error for 5 s", a="prepare c0 refused+, prepare c0, unprepare c0"),
    Scenario("s5", "prepare: whole call fails for 5 s", a="prepare c0 failed+, prepare c0, unprepare c0"),
    Scenario("s6", "prepare: entry omitted for 5 s", a="prepare c0 omitted+, prepare c0, unprepare c0"),
    Scenario("s7", "prepare hangs 70 s once", a="prepare c0 cancelled, prepare c0, unprepare c0"),
    Scenario("s8", "unprepare: entry error for 5 s", a="prepare c0, unprepare c0 refused+, unprepare c0"),
    Scenario(
        "s9",
        "driver a prepares, driver b fails; pod deleted while failing",
        a="prepare c0, unprepare c0",
        b="prepare c1 refused+, unprepare c1",
    ),
    Scenario("s10", "pod deleted while prepare hangs 8 s", a="prepare c0, unprepare c0"),
    Scenario("s11", "container ends and is restarted", a="prepare c0, unprepare c0"),
    Scenario(
        "s12",
        "agent restarts (TERM) with a pod running",
        a="prepare c0, info, registered, unprepare c0",
        b="prepare c1, info, registered, unprepare c1",
    ),
    Scenario(
        "s13",
        "agent killed while prepare hangs 6 s",
        a="prepare c0 cancelled, info, registered, prepare c0, unprepare c0",
        b="info, registered",
    ),
    Scenario("s14", "force delete with the container running", a="prepare c0, unprepare c0"),
    Scenario(
        "s15",
        "pod deleted while its agent is down, agent back",
        a="prepare c0, info, registered, unprepare c0",
        b="info, registered",
    ),
    Scenario(
        "s16",
        "pod force-deleted while its agent is down, agent back",
        a="prepare c0, info, registered, unprepare c0",
        b="info, registered",
    ),
    Scenario(
        "s17", "prepare fails; pod deleted; was unprepare called?", a="prepare c0 refused+, unprepare c0"
    ),
)

KUBELET_SECONDS = {"prepare": 45.0, "unprepare": 45.0, "info": 1.0, "registered": 5.0}
"""The deadline of each call of a kubelet."""
AGENT_SECONDS = KUBELET_SECONDS | {"info": 5.0}
"""The deadline of each call of our agent. A driver has more time for `GetInfo`: one that needs it on a busy
machine registers at the first attempt, where a kubelet tries again."""


def matches(pattern: str, calls: Iterable[Call]) -> bool:
    """Whether calls are those of a row."""
    parts = [part.strip() for part in pattern.split(",") if part.strip()]
    expression = "".join(
        f"(?:{re.escape(part.rstrip('+'))};){'+' if part.endswith('+') else ''}" for part in parts
    )
    return re.fullmatch(expression, "".join(f"{call};" for call in calls)) is not None


def drop_hidden_outcomes(pattern: str) -> str:
    """A row without the outcomes that the caller of a driver sees, but a record of calls does not have."""
    return re.sub(r" (refused|omitted)", "", pattern)


# --- records of a kubelet ---

_HEADING = re.compile(r"== (s\d+) (.*)")
_LINE = re.compile(
    r"\s*\[\s*[\d.]+\] rec-(?P<driver>\w+) (?P<method>[\w.]+) \[(?P<claims>[^]]*)\] "
    r"dl=(?P<seconds>[\d.]+)\s*(?P<state>.*)"
)
_VERBS = {
    "v1.Prepare": "prepare",
    "v1.Unprepare": "unprepare",
    "registration.GetInfo": "info",
    "registration.NotifyRegistrationStatus": "registered",
}


@dataclass
class RecordedScenario:
    """A scenario in a record of calls."""

    what: str
    calls: dict[str, list[Call]] = field(default_factory=lambda: {name: [] for name in DRIVERS})
    seconds: dict[str, set[float]] = field(default_factory=dict)
    """The deadlines that calls began with."""

    def add(self, driver: str, call: Call, state: str, seconds: float) -> None:
        calls = self.calls[driver]
        if state == "begin":
            # Until it ends, it has failed: nothing is recorded of a call that the driver fails as a whole.
            calls.append(call._replace(outcome="failed"))
        elif state in ("end", "cancelled by caller"):
            begun = call._replace(outcome="failed")
            index = max(i for i, each in enumerate(calls) if each == begun)
            calls[index] = call._replace(outcome="" if state == "end" else "cancelled")
            return
        else:
            calls.append(call)
        self.seconds.setdefault(call.verb, set()).add(seconds)


def read_record(file: Path) -> dict[str, RecordedScenario]:
    """Read a record of the calls of a kubelet, with the names of claims as in the table."""
    scenarios: dict[str, RecordedScenario] = {}
    current: RecordedScenario | None = None
    for line in file.read_text().splitlines():
        if heading := _HEADING.fullmatch(line):
            current = scenarios[heading[1]] = RecordedScenario(heading[2])
        elif current is not None and (found := _LINE.fullmatch(line)):
            claims = tuple(_shorten(name) for name in re.findall(r"'default/([^']*)'", found["claims"]))
            call = Call(_VERBS[found["method"]], claims)
            current.add(found["driver"], call, found["state"].strip(), float(found["seconds"]))
    return scenarios


def _shorten(name: str) -> str:
    """`s1-c0-m7kc7` is `c0`: the claim was made from a template for a pod."""
    generated = re.fullmatch(r"s\d+-(c\d+)-\w+", name)
    return generated[1] if generated else name
