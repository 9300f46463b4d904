"""Programs that run around a container: hooks of its devices, and the steps of a runtime.

An errand is a table: `path`, `args` (with the program's name first), `env`, `timeout` in seconds or None, and
`told`, the file in which it says what went wrong.
"""

from __future__ import annotations

import os
import sys

from dray.node.containers.runtime.shim.processes import Pause, send

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import Any, Final
else:
    import _signal as signal

_TOLD: Final = 2048


def run(
    errand: dict[str, Any],
    given: bytes = b"",
    streams: tuple[int, int] | None = None,
    stop: Callable[[], bool] = bool,
) -> str:
    """Run a program to its end, with `given` on its standard input; what went wrong, if anything."""
    told = os.open(errand["told"], os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    source, sink = os.pipe()
    try:
        out, err = streams or (told, told)
        descriptors = ((source, 0), (out, 1), (err, 2))
        pid = os.posix_spawn(
            errand["path"],
            errand["args"],
            errand["env"],
            file_actions=[(os.POSIX_SPAWN_DUP2, ours, theirs) for ours, theirs in descriptors],
            setsigdef=(signal.SIGPIPE,),
        )
        os.write(sink, given)
        os.close(sink)
        sink = -1
        return _watched(pid, errand, told, stop)
    except OSError as failed:
        return f"cannot run `{errand['path']}`: {failed.strerror}"
    finally:
        for descriptor in (source, told, sink):
            if descriptor >= 0:
                os.close(descriptor)


def _watched(pid: int, errand: dict[str, Any], told: int, stop: Callable[[], bool]) -> str:
    pause = Pause(errand["timeout"])
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if stop() or not pause.take():
            send(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return f"`{errand['path']}` took too long and was ended"
    code = os.waitstatus_to_exitcode(ended[1])
    if not code:
        return ""
    text = os.pread(told, _TOLD, max(0, os.fstat(told).st_size - _TOLD)).decode("utf-8", "replace").strip()
    return f"`{errand['path']}` ended with code {code}: {text or 'it did not say why'}"


def call_hooks(
    orders: dict[str, Any], name: str, status: str, pid: int, stop: Callable[[], bool] = bool
) -> str:
    """Run the hooks of a moment, each with the container's state on its standard input; the first trouble."""
    state = f'{orders["hook_state"]},"status":"{status}","pid":{pid}}}'.encode()
    for hook in orders["hooks"]:
        problem = run(hook, state, stop=stop) if hook["name"] == name else ""
        if problem:
            return f"hook {name}: {problem}"
    return ""


def clean_up(orders: dict[str, Any]) -> None:
    """What is done when everything has ended; trouble is noted and does not stop the rest."""
    hooks = [hook for hook in orders["hooks"] if hook["name"] == "poststop"]
    problems = [call_hooks({**orders, "hooks": [hook]}, "poststop", "stopped", 0) for hook in hooks]
    problems += [run(errand) for errand in orders["after"]]
    for problem in filter(None, problems):
        note(problem)


def note(text: str) -> None:
    """Write down what went wrong and did not stop anything."""
    print(text, file=sys.stderr, flush=True)
