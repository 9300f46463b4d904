"""A campaign: many schedules by their seeds, in processes that fork from a started cluster.

Theory of operation: a worker forks a process for each block of seeds, which starts the cluster of the block
once and forks again for each schedule. So every schedule begins in the same state at no cost, nothing has to
be cleaned up, and a schedule that hangs is killed. A replay starts the same cluster in one process and gives
the same digest.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.faults.simulated.run import Outcome, ScheduleRun, build_setup_contents, open_directory
from tests.faults.simulated.schedule import BLOCK, ClusterShape, Schedule

MAX_SECONDS: Final = 300
"""Real seconds after which a schedule counts as hung."""


@dataclass
class Tally:
    """The sums over the schedules of a campaign."""

    schedules: int = 0
    steps: int = 0
    commits: int = 0
    virtual_seconds: float = 0.0
    happened: Counter[str] = field(default_factory=Counter)
    violations: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Add a schedule."""
        self.schedules += 1
        self.steps += outcome.steps
        self.commits += outcome.commits
        self.virtual_seconds += outcome.seconds
        self.happened += outcome.happened
        if outcome.violations:
            self.violations.append(outcome)

    def __str__(self) -> str:
        faults = ", ".join(f"{count:,} {name}" for name, count in sorted(self.happened.items()))
        return (
            f"{self.schedules:,} schedules, {self.steps:,} steps, {self.commits:,} commits checked, "
            f"{self.virtual_seconds / 3600:,.0f} virtual hours; {len(self.violations)} with a violation; "
            f"faults: {faults}"
        )


def group_by_block(seeds: Iterable[int]) -> dict[int, list[int]]:
    """Group seeds by the cluster with which they begin."""
    blocks: dict[int, list[int]] = {}
    for seed in seeds:
        blocks.setdefault(seed // BLOCK, []).append(seed)
    return blocks


def run_campaign(
    seeds: Iterable[int], jobs: int, plant: Callable[[], None] = lambda: None, *, stop_early: bool = False
) -> Iterator[Outcome]:
    """Yield the outcome of each schedule, in no order; `plant` is called before a cluster starts."""
    blocks = list(group_by_block(seeds).items())
    warm_up()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    workers = [_start_worker(blocks[number::jobs], plant) for number in range(min(jobs, len(blocks)))]
    try:
        yield from _read_outcomes([reader for _, reader in workers], stop_early=stop_early)
    finally:
        for pid, reader in workers:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
            reader.close()


def warm_up() -> None:
    """Build once what all schedules share, and keep it out of every later collection of garbage."""
    sys.unraisablehook = lambda _: None  # coroutines that are dropped in the middle complain
    for nodes in (1, 2, 3):
        build_setup_contents(nodes)
    gc.collect()
    gc.freeze()
    gc.disable()


def _read_outcomes(readers: Sequence[Any], *, stop_early: bool) -> Iterator[Outcome]:
    left = list(readers)
    while left:
        for reader in select.select(left, [], [])[0]:
            try:
                outcome: Outcome = pickle.load(reader)
            except EOFError:
                left.remove(reader)
                continue
            yield outcome
            if stop_early and outcome.violations:
                return


def _fork(work: Callable[[], None]) -> int:
    """Run work in a forked process, which then ends without any clean-up."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _start_worker(blocks: Sequence[tuple[int, list[int]]], plant: Callable[[], None]) -> tuple[int, Any]:
    source, sink = os.pipe()
    parent = os.getpid()

    def work() -> None:
        os.close(source)
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
        for block, seeds in blocks:
            if os.getppid() != parent:
                return  # the campaign was killed
            os.waitpid(_fork(partial(_run_block, block, seeds, sink, plant)), 0)

    pid = _fork(work)
    os.close(sink)
    return pid, os.fdopen(source, "rb", buffering=0)


def _run_block(block: int, seeds: Sequence[int], sink: int, plant: Callable[[], None]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    plant()
    with open_directory():
        run = ScheduleRun(ClusterShape.from_seed(block), block)
        for seed in seeds:
            pid = _fork(partial(_run_one, run, seed, sink))
            if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
                write_outcome(sink, Outcome(seed, ["the schedule hung or failed"], [], 0, 0, 0.0, ""))


def _run_one(run: ScheduleRun, seed: int, sink: int) -> None:
    signal.alarm(MAX_SECONDS)
    # The files that exist already are named by paths that are relative to the current directory.
    with open_directory(Path.cwd()):
        outcome = run.run(Schedule.from_seed(seed))
    write_outcome(sink, outcome)


def write_outcome(sink: int, outcome: Outcome) -> None:
    """Write an outcome to a pipe that several processes share, in one piece."""
    if not outcome.violations:
        outcome.trace.clear()
    text = pickle.dumps(outcome)
    while len(text) > select.PIPE_BUF and outcome.trace:
        del outcome.trace[0]
        text = pickle.dumps(outcome)
    os.write(sink, text)


def show_progress(outcomes: Iterable[Outcome], total: int, every: float = 10.0) -> Tally:
    """Add outcomes, print a line now and then, and each violation with the command that repeats it."""
    tally, begun, shown = Tally(), time.monotonic(), time.monotonic()
    for outcome in outcomes:
        tally.add(outcome)
        if outcome.violations:
            print(format_violation(outcome), flush=True)
        now = time.monotonic()
        if now - shown > every:
            shown = now
            rate = tally.schedules / (now - begun)
            print(
                f"{tally.schedules:,} of {total:,} schedules, {rate:.1f} per second, {tally.steps:,} steps, "
                f"{len(tally.violations)} with a violation",
                flush=True,
            )
    return tally


def format_violation(outcome: Outcome) -> str:
    """Format a violation with what led to it."""
    lines = [f"seed {outcome.seed}, step {outcome.steps}: {'; '.join(outcome.violations)}"]
    lines += (f"    {line}" for line in outcome.trace)
    lines.append(f"replay: python -m tests.faults.simulated --replay {outcome.seed}")
    return "\n".join(lines)
