"""Programs that run around a container: hooks of its devices, and the steps of a runtime.

An errand is a table: `path`, `args` (with the program's name first), `env`, `timeout` in seconds or None, and
`error_fd`, the file in which it says what went wrong.
"""

from __future__ import annotations

import os
import sys

from dray.node.containers.runtime.shim.processes import PollBackoff, send_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import Any, Final
else:
    import _signal as signal

_MAX_ERROR_BYTES: Final = 2048


def run_command(
    command: dict[str, Any],
    stdin: bytes = b"",
    streams: tuple[int, int] | None = None,
    should_stop: Callable[[], bool] = bool,
) -> str:
    """Run a program to its end, with `stdin` on its standard input; what went wrong, if anything."""
    told = os.open(command["told"], os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    source, sink = os.pipe()
    try:
        out, err = streams or (told, told)
        descriptors = ((source, 0), (out, 1), (err, 2))
        pid = os.posix_spawn(
            command["path"],
            command["args"],
            command["env"],
            file_actions=[(os.POSIX_SPAWN_DUP2, ours, theirs) for ours, theirs in descriptors],
            setsigdef=(signal.SIGPIPE,),
        )
        os.write(sink, stdin)
        os.close(sink)
        sink = -1
        return _wait_for_command(pid, command, told, should_stop)
    except OSError as failed:
        return f"cannot run `{command['path']}`: {failed.strerror}"
    finally:
        for descriptor in (source, told, sink):
            if descriptor >= 0:
                os.close(descriptor)


def _wait_for_command(
    pid: int, command: dict[str, Any], error_fd: int, should_stop: Callable[[], bool]
) -> str:
    pause = PollBackoff(command["timeout"])
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if should_stop() or not pause.wait():
            send_signal(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return f"`{command['path']}` took too long and was ended"
    code = os.waitstatus_to_exitcode(ended[1])
    if not code:
        return ""
    text = (
        os.pread(error_fd, _MAX_ERROR_BYTES, max(0, os.fstat(error_fd).st_size - _MAX_ERROR_BYTES))
        .decode("utf-8", "replace")
        .strip()
    )
    return f"`{command['path']}` ended with code {code}: {text or 'it did not say why'}"


def run_hooks(
    config: dict[str, Any], name: str, status: str, pid: int, should_stop: Callable[[], bool] = bool
) -> str:
    """Run the hooks of a moment, each with the container's state on its standard input; the first trouble."""
    state = f'{config["hook_state"]},"status":"{status}","pid":{pid}}}'.encode()
    for hook in config["hooks"]:
        problem = run_command(hook, state, should_stop=should_stop) if hook["name"] == name else ""
        if problem:
            return f"hook {name}: {problem}"
    return ""


def clean_up(config: dict[str, Any]) -> None:
    """What is done when everything has ended; trouble is noted and does not stop the rest."""
    hooks = [hook for hook in config["hooks"] if hook["name"] == "poststop"]
    problems = [run_hooks({**config, "hooks": [hook]}, "poststop", "stopped", 0) for hook in hooks]
    problems += [run_command(errand) for errand in config["after"]]
    for problem in filter(None, problems):
        write_note(problem)


def write_note(text: str) -> None:
    """Write down what went wrong and did not stop anything."""
    print(text, file=sys.stderr, flush=True)
