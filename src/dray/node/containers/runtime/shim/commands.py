"""Commands that a shim runs around a container: CDI hooks, and the steps of an OCI runtime.

A command is a dictionary: `path`, `args` (with the program's name first), `env`, `timeout` in seconds or
None, and `told`, the file for its error messages. The keys are part of the config file, which an agent and a
shim of different versions share.
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
    """Run a command to its end, with `stdin` on its standard input; return what failed, or nothing."""
    error_fd = os.open(command["told"], os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    source, sink = os.pipe()
    try:
        out, err = streams or (error_fd, error_fd)
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
        return _wait_for_command(pid, command, error_fd, should_stop)
    except OSError as error:
        return f"cannot run `{command['path']}`: {error.strerror}"
    finally:
        for descriptor in (source, error_fd, sink):
            if descriptor >= 0:
                os.close(descriptor)


def _wait_for_command(
    pid: int, command: dict[str, Any], error_fd: int, should_stop: Callable[[], bool]
) -> str:
    backoff = PollBackoff(command["timeout"])
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if should_stop() or not backoff.wait():
            send_signal(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return f"`{command['path']}` took too long and was killed"
    code = os.waitstatus_to_exitcode(ended[1])
    if not code:
        return ""
    text = (
        os.pread(error_fd, _MAX_ERROR_BYTES, max(0, os.fstat(error_fd).st_size - _MAX_ERROR_BYTES))
        .decode("utf-8", "replace")
        .strip()
    )
    return f"`{command['path']}` ended with code {code}: {text or 'no error message'}"


def run_hooks(
    config: dict[str, Any], name: str, status: str, pid: int, should_stop: Callable[[], bool] = bool
) -> str:
    """Run the hooks of a name, each with the container's state on its standard input, until one fails."""
    state = f'{config["hook_state"]},"status":"{status}","pid":{pid}}}'.encode()
    for hook in config["hooks"]:
        problem = run_command(hook, state, should_stop=should_stop) if hook["name"] == name else ""
        if problem:
            return f"hook {name}: {problem}"
    return ""


def clean_up(config: dict[str, Any]) -> None:
    """Run the poststop hooks and cleanup commands; errors are noted and do not stop the rest."""
    hooks = [hook for hook in config["hooks"] if hook["name"] == "poststop"]
    problems = [run_hooks({**config, "hooks": [hook]}, "poststop", "stopped", 0) for hook in hooks]
    problems += [run_command(command) for command in config["after"]]
    for problem in filter(None, problems):
        write_note(problem)


def write_note(text: str) -> None:
    """Write an error that stops nothing to the notes, which are standard error."""
    print(text, file=sys.stderr, flush=True)
