"""The program itself: starts the container, stays with it, and says how it ended.

Theory of operation: agent and keeper know each other only by files and signals, so either may be restarted or
die alone. The keeper holds a lock on its orders as long as it lives, so there is never a second one. Signals
that people send are forwarded to the container's first process; `END_SIGNAL` ends all of it. The keeper is a
subreaper: whatever the container leaves behind, in whatever session, becomes its child and is ended with the
first process. Called to `close`, it does what a keeper that was killed could not do: it ends what still
runs, cleans up and writes the exit.
"""

from __future__ import annotations

import ctypes
import fcntl
import marshal
import os
import select
import time

from dray.node.containers.runtime.shim import files
from dray.node.containers.runtime.shim.commands import clean_up, run_command, run_hooks, write_note
from dray.node.containers.runtime.shim.log import ContainerLogWriter
from dray.node.containers.runtime.shim.processes import (
    KILL_TIMEOUT,
    PollBackoff,
    find_descendants,
    kill_container_processes,
    list_processes,
    send_signal,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, Final
else:
    import _signal as signal

READY_FD: Final = 3
END_SIGNAL: Final = signal.SIGRTMIN
FORWARDED: Final = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
_START_HOOKS: Final = ("prestart", "createRuntime", "createContainer", "startContainer")
_MAX_FILES: Final = 65536
_CHUNK: Final = 65536
_SET_CHILD_SUBREAPER: Final = 36
_SET_NAME: Final = 15
_LIBC: Final = ctypes.CDLL(None)


class ContainerStartError(Exception):
    """The container could not be started; says why."""


class Shim:
    """One container and everything that belongs to it."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._pending_signals: list[int] = []
        self._ending = False
        self._main = 0
        self._status: int | None = None
        self._started = time.time()

    def run(self) -> None:
        """Start the container, stay with it, and say how it ended."""
        awake = self._install_signal_handlers()
        files.write_state(0, self._started)
        log = ContainerLogWriter(self._config["log"], self._config["log_limit"], self._config["log_keep"])
        out, out_in = os.pipe()
        err, err_in = os.pipe()
        streams = {out: b"stdout", err: b"stderr"}
        trouble = ""
        try:
            self._start_container(out_in, err_in)
            self._started = time.time()
            files.write_state(self._main, self._started)
        except (ContainerStartError, OSError, ValueError) as failed:
            trouble = str(failed)
            self._ending = True
        os.close(out_in)
        os.close(err_in)
        if not trouble:
            self._notify_ready()
            self._monitor(awake, streams, log)
        finished = time.time()
        self._kill_all()
        for stream in streams:
            _drain(stream, streams[stream], log)
        log.close()
        clean_up(self._config)
        files.write_exit(self._build_exit(trouble), self._started, finished)
        if trouble:
            self._notify_ready()

    def _notify_ready(self) -> None:
        try:
            os.write(READY_FD, b"ready")
            os.close(READY_FD)
        except OSError:
            # The agent that started us is gone already.
            return

    def _build_exit(self, error: str) -> tuple[int, int, str, str]:
        if error:
            return 128, 0, "StartError", error
        if self._status is None:
            return 137, 9, "Error", f"its first process did not end {KILL_TIMEOUT:.0f}s after it was killed"
        if os.WIFSIGNALED(self._status):
            number = os.WTERMSIG(self._status)
            return 128 + number, number, "Error", ""
        code = os.WEXITSTATUS(self._status)
        return code, 0, "Error" if code else "Completed", ""

    def _install_signal_handlers(self) -> int:
        awake, wake = os.pipe()
        os.set_blocking(awake, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (*FORWARDED, END_SIGNAL, signal.SIGCHLD):
            signal.signal(number, self._handle_signal)
        return awake

    def _handle_signal(self, number: int, _: object) -> None:
        if number == END_SIGNAL:
            self._ending = True
        elif number != signal.SIGCHLD:
            self._pending_signals.append(number)

    def _start_container(self, out: int, err: int) -> None:
        for errand in self._config["before"]:
            self._run_command(errand)
        if self._config["create"]:
            self._start_with_runtime(out, err)
        else:
            self._start_process(out, err)

    def _start_process(self, out: int, err: int) -> None:
        """Start the command; it waits at a gate while the hooks run, so that they can be told its process."""
        gate, opened = os.pipe()
        trouble, told = os.pipe()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (*FORWARDED, END_SIGNAL))
        self._main = os.fork()
        if not self._main:
            os.close(opened)
            _exec_container(self._config, gate, told, (out, err))
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(gate)
        os.close(told)
        files.write_state(self._main, self._started)
        try:
            for name in _START_HOOKS:
                problem = run_hooks(self._config, name, "created", self._main, self._is_ending)
                if problem:
                    raise ContainerStartError(problem)
            os.write(opened, b"go")
            message = os.read(trouble, 4096)
            if message:
                raise ContainerStartError(message.decode("utf-8", "replace"))
        finally:
            os.close(opened)
            os.close(trouble)
        problem = run_hooks(self._config, "poststart", "running", self._main, self._is_ending)
        if problem:
            write_note(problem)

    def _start_with_runtime(self, out: int, err: int) -> None:
        """Let a runtime make the container; its first process becomes ours when the runtime has ended."""
        orders = self._config
        self._run_command(orders["create"], (out, err))
        with open(orders["pid_file"], encoding="ascii") as file:
            self._main = int(file.read())
        files.write_state(self._main, self._started)
        self._run_command(orders["start"])

    def _run_command(self, command: dict[str, Any], streams: tuple[int, int] | None = None) -> None:
        problem = run_command(command, streams=streams, should_stop=self._is_ending)
        if problem:
            raise ContainerStartError(problem)

    def _is_ending(self) -> bool:
        return self._ending

    def _monitor(self, awake: int, streams: dict[int, bytes], log: ContainerLogWriter) -> None:
        """Take what the container says and pass on what it is told, until its first process has ended."""
        poll = select.poll()
        for descriptor in (awake, *streams):
            poll.register(descriptor, select.POLLIN)
        self._reap()
        while self._status is None and not self._ending:
            while self._pending_signals:
                send_signal(self._main, self._pending_signals.pop(0))
            for descriptor, _ in poll.poll():
                if descriptor == awake:
                    os.read(awake, 512)
                    self._reap()
                    continue
                chunk = os.read(descriptor, _CHUNK)
                if chunk:
                    log.write_chunk(streams[descriptor], chunk)
                else:
                    poll.unregister(descriptor)

    def _reap(self) -> bool:
        """Take note of processes that ended; whether there are any left."""
        while True:
            try:
                ended, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not ended:
                return True
            if ended == self._main:
                self._status = status

    def _kill_all(self) -> None:
        pause = PollBackoff(KILL_TIMEOUT)
        while self._reap() and pause.wait():
            for process in find_descendants({os.getpid()}, list_processes()):
                send_signal(process, signal.SIGKILL)


def _exec_container(config: dict[str, Any], gate: int, error_fd: int, streams: tuple[int, int]) -> None:
    """Be the container's first process; never returns."""
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(streams[0], 1)
        os.dup2(streams[1], 2)
        if not os.read(gate, 2):
            os._exit(128)
        signal.set_wakeup_fd(-1)
        for number in (*FORWARDED, END_SIGNAL, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.umask(0o022)
        if config["groups"] is not None:
            os.setgroups(config["groups"])
        if config["group"] is not None:
            os.setgid(config["group"])
        if config["user"] is not None:
            os.setuid(config["user"])
        os.chdir(config["cwd"])
        _exec_command(config["argv"], config["env"])
    except Exception as failed:
        os.write(error_fd, _describe_exec_error(failed, config).encode("utf-8", "replace")[:4096])
    finally:
        os._exit(128)


def _exec_command(argv: list[str], env: dict[str, str]) -> None:
    """Execute a command of the container's PATH; the standard library would have to be read for that now."""
    name = argv[0]
    places = [name] if "/" in name else [f"{place or '.'}/{name}" for place in env.get("PATH", "").split(":")]
    failed: OSError = FileNotFoundError(2, "No such file or directory")
    for place in places:
        try:
            os.execve(place, argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as refused:
            failed = refused
    raise failed


def _describe_exec_error(error: Exception, config: dict[str, Any]) -> str:
    text = error.strerror if isinstance(error, OSError) else str(error)
    if isinstance(error, OSError) and error.filename == config["cwd"]:
        return f"cannot change to the working directory `{config['cwd']}`: {text}"
    return f"cannot execute `{config['argv'][0]}`: {text}"


def _drain(descriptor: int, stream: bytes, log: ContainerLogWriter) -> None:
    os.set_blocking(descriptor, False)
    try:
        while chunk := os.read(descriptor, _CHUNK):
            log.write_chunk(stream, chunk)
    except BlockingIOError:
        return


def finish_container(config: dict[str, Any]) -> None:
    """Do what a keeper that was killed left undone."""
    state, _ = files.read_fields(files.STATE)
    now = time.time()
    why = "the process that kept it was killed"
    try:
        started = float(state["started"][0])
        main, start = (int(word) for word in state["main"])
        if state["boot"] != files.read_boot_id().split():
            # Those processes are somebody else's by now.
            main = start = 0
            why = "the machine was started anew"
    except (KeyError, IndexError, ValueError):
        main, start, started = 0, 0, now
    kill_container_processes(main, start, config["mark"].encode())
    clean_up(config)
    files.write_exit((137, 0, "ContainerStatusUnknown", why), started, now)


def set_process_name(name: str) -> None:
    """Have this process called something in lists of processes."""
    _LIBC.prctl(_SET_NAME, name.encode(), 0, 0, 0)


def main(directory: str, task: str) -> int:
    """Keep the container of a directory, or finish it."""
    set_process_name("dray-keeper")
    os.umask(0o077)
    os.chdir(directory)
    # Whatever the agent left open is not for the container, nor for us.
    os.set_inheritable(READY_FD, False)
    os.closerange(READY_FD + 1, _MAX_FILES)
    with open(files.CONFIG, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            write_note("somebody keeps this container already")
            return 1
        if os.path.exists(files.EXIT):
            return 0
        _LIBC.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        orders = marshal.load(file)
        if task == "finish":
            finish_container(orders)
        else:
            Shim(orders).run()
    return 0
