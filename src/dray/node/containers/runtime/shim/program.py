"""The shim's program: starts the container, monitors it, and writes its exit.

Theory of operation: agent and shim communicate only by files and signals, so either may be restarted or
killed alone. The shim holds a lock on its config while it runs, so there is never a second one. It forwards
signals to the container's first process; `END_SIGNAL` kills all of the container. The shim is a subreaper:
processes that the container leaves behind, in whatever session, become its children and are killed with the
first process. With the task `finish` it does what a killed shim could not: it kills what still runs, cleans
up and writes the exit.
"""

from __future__ import annotations

import ctypes
import fcntl
import marshal
import os
import select
import time

from dray.node.containers.runtime.shim import files, isolation
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
    """The container could not be started."""


class Shim:
    """Runs one container."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._pending_signals: list[int] = []
        self._ending = False
        self._main = 0
        self._status: int | None = None
        self._started = time.time()

    def run(self) -> None:
        """Start the container, monitor it, and write its exit."""
        wakeup_fd = self._install_signal_handlers()
        files.write_state(0, self._started)
        log = ContainerLogWriter(self._config["log"], self._config["log_limit"], self._config["log_keep"])
        out, out_in = os.pipe()
        err, err_in = os.pipe()
        streams = {out: b"stdout", err: b"stderr"}
        start_error = ""
        try:
            self._start_container(out_in, err_in)
            self._started = time.time()
            files.write_state(self._main, self._started)
        except (ContainerStartError, OSError, ValueError) as error:
            start_error = str(error)
            self._ending = True
        os.close(out_in)
        os.close(err_in)
        if not start_error:
            self._notify_ready()
            self._monitor(wakeup_fd, streams, log)
        finished = time.time()
        self._kill_all()
        for stream in streams:
            _drain(stream, streams[stream], log)
        log.close()
        clean_up(self._config)
        files.write_exit(self._build_exit(start_error), self._started, finished)
        if start_error:
            self._notify_ready()

    def _notify_ready(self) -> None:
        try:
            os.write(READY_FD, b"ready")
            os.close(READY_FD)
        except OSError:
            # The agent that requested this shim has ended.
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
        wakeup_fd, write_fd = os.pipe()
        os.set_blocking(wakeup_fd, False)
        os.set_blocking(write_fd, False)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        for number in (*FORWARDED, END_SIGNAL, signal.SIGCHLD):
            signal.signal(number, self._handle_signal)
        return wakeup_fd

    def _handle_signal(self, number: int, _: object) -> None:
        if number == END_SIGNAL:
            self._ending = True
        elif number != signal.SIGCHLD:
            self._pending_signals.append(number)

    def _start_container(self, out: int, err: int) -> None:
        for command in self._config["before"]:
            self._run_command(command)
        if self._config["create"]:
            self._start_with_runtime(out, err)
        else:
            self._start_process(out, err)

    def _start_process(self, out: int, err: int) -> None:
        """Start the command; it waits on a pipe while the hooks run, because they need its pid."""
        go_read, go_write = os.pipe()
        error_read, error_write = os.pipe()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (*FORWARDED, END_SIGNAL))
        view = self._config["namespaces"]
        self._main = isolation.fork_into_namespaces(view) if view else os.fork()
        if not self._main:
            os.close(go_write)
            _exec_container(self._config, go_read, error_write, (out, err))
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(go_read)
        os.close(error_write)
        files.write_state(self._main, self._started)
        try:
            for name in _START_HOOKS:
                problem = run_hooks(self._config, name, "created", self._main, self._is_ending)
                if problem:
                    raise ContainerStartError(problem)
            os.write(go_write, b"go")
            message = os.read(error_read, 4096)
            if message:
                raise ContainerStartError(message.decode("utf-8", "replace"))
        finally:
            os.close(go_write)
            os.close(error_read)
        problem = run_hooks(self._config, "poststart", "running", self._main, self._is_ending)
        if problem:
            write_note(problem)

    def _start_with_runtime(self, out: int, err: int) -> None:
        """Have an OCI runtime create the container; its first process becomes a child of the shim."""
        self._run_command(self._config["create"], (out, err))
        with open(self._config["pid_file"], encoding="ascii") as file:
            self._main = int(file.read())
        files.write_state(self._main, self._started)
        self._run_command(self._config["start"])

    def _run_command(self, command: dict[str, Any], streams: tuple[int, int] | None = None) -> None:
        problem = run_command(command, streams=streams, should_stop=self._is_ending)
        if problem:
            raise ContainerStartError(problem)

    def _is_ending(self) -> bool:
        return self._ending

    def _monitor(self, wakeup_fd: int, streams: dict[int, bytes], log: ContainerLogWriter) -> None:
        """Log the container's output and forward signals until its first process has ended."""
        poll = select.poll()
        for descriptor in (wakeup_fd, *streams):
            poll.register(descriptor, select.POLLIN)
        self._reap()
        while self._status is None and not self._ending:
            while self._pending_signals:
                send_signal(self._main, self._pending_signals.pop(0))
            for descriptor, _ in poll.poll():
                if descriptor == wakeup_fd:
                    os.read(wakeup_fd, 512)
                    self._reap()
                    continue
                chunk = os.read(descriptor, _CHUNK)
                if chunk:
                    log.write_chunk(streams[descriptor], chunk)
                else:
                    poll.unregister(descriptor)

    def _reap(self) -> bool:
        """Reap children that have ended; return whether any is left."""
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
        backoff = PollBackoff(KILL_TIMEOUT)
        while self._reap() and backoff.wait():
            for process in find_descendants({os.getpid()}, list_processes()):
                send_signal(process, signal.SIGKILL)


def _exec_container(config: dict[str, Any], go_fd: int, error_fd: int, streams: tuple[int, int]) -> None:
    """Become the container's first process; never returns."""
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(streams[0], 1)
        os.dup2(streams[1], 2)
        if not os.read(go_fd, 2):
            os._exit(128)
        signal.set_wakeup_fd(-1)
        for number in (*FORWARDED, END_SIGNAL, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.umask(0o022)
        _change_user(config)
        os.chdir(config["cwd"])
        _exec_command(config["argv"], config["env"])
    except Exception as error:
        os.write(error_fd, _describe_exec_error(error, config).encode("utf-8", "replace")[:4096])
    finally:
        os._exit(128)


def _change_user(config: dict[str, Any]) -> None:
    if config["user"] is not None and os.geteuid() == 0:
        # So that programs can open /dev/stdout and /dev/stderr.
        for stream in (1, 2):
            os.fchown(stream, config["user"], -1)
    if config["isolated"]:
        isolation.drop_privileges()
    if config["groups"] is not None:
        os.setgroups(config["groups"])
    if config["group"] is not None:
        os.setgid(config["group"])
    if config["user"] is not None:
        os.setuid(config["user"])


def _exec_command(argv: list[str], env: dict[str, str]) -> None:
    """Execute a command of the container's PATH; `os.execvpe` would import more modules now."""
    name = argv[0]
    paths = (
        [name] if "/" in name else [f"{folder or '.'}/{name}" for folder in env.get("PATH", "").split(":")]
    )
    failure: OSError = FileNotFoundError(2, "No such file or directory")
    for path in paths:
        try:
            os.execve(path, argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            failure = error
    raise failure


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
    """Do what a killed shim left undone."""
    state, _ = files.read_fields(files.STATE)
    now = time.time()
    why = "its shim was killed"
    try:
        started = float(state["started"][0])
        main, start = (int(word) for word in state["main"])
        if state["boot"] != files.read_boot_id().split():
            # These pids belong to other processes now.
            main = start = 0
            why = "the machine was rebooted"
    except (KeyError, IndexError, ValueError):
        main, start, started = 0, 0, now
    kill_container_processes(main, start, config["mark"].encode())
    clean_up(config)
    files.write_exit((137, 0, "ContainerStatusUnknown", why), started, now)


def set_process_name(name: str) -> None:
    """Set the name of this process in process lists."""
    _LIBC.prctl(_SET_NAME, name.encode(), 0, 0, 0)


def main(directory: str, task: str) -> int:
    """Run the container of a directory (task `keep`), or finish one whose shim was killed (`finish`)."""
    set_process_name("dray-shim")
    os.umask(0o077)
    os.chdir(directory)
    # Descriptors that the agent left open must not reach the container.
    os.set_inheritable(READY_FD, False)
    os.closerange(READY_FD + 1, _MAX_FILES)
    with open(files.CONFIG, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            write_note("another shim runs this container already")
            return 1
        if os.path.exists(files.EXIT):
            return 0
        _LIBC.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        config = marshal.load(file)
        if task == "finish":
            finish_container(config)
        else:
            Shim(config).run()
    return 0
