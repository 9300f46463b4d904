"""Whether a process is well: named checks, and the text that probes and people read at `/readyz`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

PATHS = ("/healthz", "/livez", "/readyz")

Check = Callable[[], str | None]
"""What is wrong, in a line; None when nothing is."""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether all checks passed, and the words for it."""

    good: bool
    text: str


def health_at(path: str, checks: Mapping[str, Check], *, verbose: bool = False) -> Health | None:
    """What `path` answers: one of `PATHS`, or one followed by the name of a check; None for other paths."""
    top, _, asked = path.strip("/").partition("/")
    if f"/{top}" not in PATHS or (asked and asked not in checks):
        return None
    # A process that is alive but not ready must not be restarted for it.
    names = [asked] if asked else ([] if top == "livez" else list(checks))
    troubles = {name: checks[name]() for name in names}
    good = not any(troubles.values())
    if good and not verbose:
        return Health(True, "ok")
    lines = [f"[-]{name} failed: {why}" if why else f"[+]{name} ok" for name, why in troubles.items()]
    return Health(good, "\n".join([*lines, f"{top} check {'passed' if good else 'failed'}", ""]))
