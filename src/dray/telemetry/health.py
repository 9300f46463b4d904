"""Health checks: named checks, and the text of `/livez`, `/readyz` and `/healthz`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

HEALTH_PATHS = ("/healthz", "/livez", "/readyz")

HealthCheck = Callable[[], str | None]
"""A check returns what is wrong, in one line; None when nothing is."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Whether all checks passed, and the text to answer with."""

    passed: bool
    text: str


def run_health_checks(
    path: str, checks: Mapping[str, HealthCheck], *, verbose: bool = False
) -> ProbeResult | None:
    """Answer a health path, optionally followed by the name of one check; None for other paths."""
    top, _, check = path.strip("/").partition("/")
    if f"/{top}" not in HEALTH_PATHS or (check and check not in checks):
        return None
    # A process that is alive but not ready must not be restarted for that.
    names = [check] if check else ([] if top == "livez" else list(checks))
    troubles = {name: checks[name]() for name in names}
    good = not any(troubles.values())
    if good and not verbose:
        return ProbeResult(True, "ok")
    lines = [f"[-]{name} failed: {why}" if why else f"[+]{name} ok" for name, why in troubles.items()]
    return ProbeResult(good, "\n".join([*lines, f"{top} check {'passed' if good else 'failed'}", ""]))
