"""Whether a process is well: named checks, and the text that probes and people read at `/readyz`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

HEALTH_PATHS = ("/healthz", "/livez", "/readyz")

HealthCheck = Callable[[], str | None]
"""What is wrong, in a line; None when nothing is."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Whether all checks passed, and the words for it."""

    passed: bool
    text: str


def run_health_checks(
    path: str, checks: Mapping[str, HealthCheck], *, verbose: bool = False
) -> ProbeResult | None:
    """What `path` answers: one of `HEALTH_PATHS`, or one followed by the name of a check; None for other
    paths.
    """
    top, _, asked = path.strip("/").partition("/")
    if f"/{top}" not in HEALTH_PATHS or (asked and asked not in checks):
        return None
    # A process that is alive but not ready must not be restarted for it.
    names = [asked] if asked else ([] if top == "livez" else list(checks))
    troubles = {name: checks[name]() for name in names}
    good = not any(troubles.values())
    if good and not verbose:
        return ProbeResult(True, "ok")
    lines = [f"[-]{name} failed: {why}" if why else f"[+]{name} ok" for name, why in troubles.items()]
    return ProbeResult(good, "\n".join([*lines, f"{top} check {'passed' if good else 'failed'}", ""]))
