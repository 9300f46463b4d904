"""A shell session as a page shows it: foreground commands, background jobs, variables.

Theory of operation: every command runs in a shell of its own, after the `export` and assignment lines
before it. A command that ends in `&` becomes a job: `JobControl` adds what a test needs (a free port, a log
file) and waits until the program is ready. A command that only reads is repeated until its output is the
expected one, because a cluster needs a moment.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_SECONDS = 150
_POLL_SECONDS = 0.2
_BACKGROUND = re.compile(r"^(?P<command>.*\S)\s*&$")
_KILL = re.compile(r"^kill(?: -(?P<signal>\d+))?(?P<jobs>(?: %\d+)+)$")
_VARIABLE = re.compile(r"""^(?:export )?(?:\w+=(?:'[^']*'|"[^"]*"|\S*)(?:\s+|$))+$""")
_READS = re.compile(
    r"^(?:kubectl (?:get|logs|describe|events|dray|top)|dray (?:status|explain|doctor)|tail|ls|cat)\b"
)
_READY_LINES = {
    "dray up": "use it with",
    "dray server": "serving https",
    "dray node": "the agent takes pods",
    "dray scheduler": "",
    "dray controller": "",
}
_EXTRA_FLAGS = {
    "dray up": ("--port 0",),
    "dray server": ("--port 0",),
    "dray node": ("--port 0", "--stop-pods"),
}


@dataclass(frozen=True)
class Mismatch:
    """A command or a program that does not do what the page shows."""

    line: int
    ran: str
    expected: str
    got: str

    def __str__(self) -> str:
        shown = f"--- the page shows\n{self.expected}\n--- what happens\n{self.got}"
        return f"line {self.line}: {self.ran}\n{shown}\n"


def matches(expected: str, got: str) -> bool:
    """Whether an output is what the page shows; trailing blanks do not count."""
    pattern = ""
    for line in expected.strip("\n").splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*"
        else:
            pattern += ".*".join(re.escape(part) for part in line.rstrip().split("...")) + r" *\n"
    shown = got.strip("\n") + "\n" if got.strip() else ""
    return re.fullmatch(pattern, shown) is not None


class JobControl:
    """The background jobs of a session, numbered from 1 as a shell numbers them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jobs: list[subprocess.Popen[bytes]] = []

    def start(self, command: str, preamble: str, environment: dict[str, str]) -> str:
        """Start a job, wait until it is ready, and return what it has written."""
        program = " ".join(command.split()[:2])
        flags = [flag for flag in _EXTRA_FLAGS.get(program, ()) if flag.split()[0] not in command]
        log_path = self._folder / f"job-{len(self._jobs) + 1}.log"
        with log_path.open("wb") as log:
            # `exec` after the variables, so that the process is the program and not a shell around it.
            job = subprocess.Popen(
                ["/bin/sh", "-c", f"{preamble}exec {' '.join([command, *flags])}"],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._jobs.append(job)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        sign = _READY_LINES.get(program, "")
        while sign not in log_path.read_text() and job.poll() is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        if program == "dray server":
            _wait_for_file(self._folder / "dray-data" / "admin.kubeconfig", deadline)
        return log_path.read_text()

    def kill(self, numbers: list[int], number_of_signal: int = signal.SIGTERM) -> None:
        """Send a signal to jobs, and wait until they have ended."""
        for number in numbers:
            self._jobs[number - 1].send_signal(number_of_signal)
        for number in numbers:
            self._jobs[number - 1].wait(TIMEOUT_SECONDS)

    def stop_all(self) -> None:
        """End every job that still runs, the newest first; by force when it does not end."""
        for job in reversed(self._jobs):
            if job.poll() is None:
                job.terminate()
                try:
                    job.wait(20)
                except subprocess.TimeoutExpired:
                    job.kill()
                    job.wait()


class PageShell:
    """Runs the commands of a page one after the other, in one folder."""

    def __init__(self, folder: Path, *, repeat_reads: bool) -> None:
        self.jobs = JobControl(folder)
        self._folder = folder
        self._repeat_reads = repeat_reads
        self._preamble = ""
        self._status = 0
        self._environment = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
            "HOME": str(folder),
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "110",
            "TERM": "dumb",
            "NO_COLOR": "1",
        }

    def run(self, line: int, typed: str, expected: str) -> Mismatch | None:
        """Run what is typed at a line; return how the output differs from the expected one."""
        got = self._run_once(typed)
        if not expected and _BACKGROUND.match(typed):
            return None  # a page need not show what a background job writes
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not matches(expected, got):
            if not (self._repeat_reads and _READS.match(typed)) or time.monotonic() > deadline:
                return Mismatch(line, typed, expected, got)
            time.sleep(_POLL_SECONDS)
            got = self._run_once(typed)
        return None

    def _run_once(self, typed: str) -> str:
        if background := _BACKGROUND.match(typed):
            return self.jobs.start(background["command"], self._preamble, self._environment)
        if kill := _KILL.match(typed):
            numbers = [int(job.removeprefix("%")) for job in kill["jobs"].split()]
            self.jobs.kill(numbers, int(kill["signal"] or signal.SIGTERM))
            return ""
        if _VARIABLE.match(typed):
            self._preamble += f"{typed}\n"
            return ""
        # The status of the command before is there for `echo $?`.
        done = subprocess.run(
            ["/bin/sh", "-c", f"{self._preamble}(exit {self._status})\n{typed}"],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        self._status = done.returncode
        return done.stdout.decode()


def _wait_for_file(path: Path, deadline: float) -> None:
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
