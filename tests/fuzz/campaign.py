"""A fuzzing run: inputs by number, their outcomes, and the failures minimised.

Theory of operation: input number `i` of a run with seed `s` is made from `s` and `i` alone, so that any part
of a run can be repeated, in any order and on any number of processes. A failure is identified by its
signature: the exception and the line of dray it came from, or the property it broke. One input per signature
is kept and minimised.
"""

from __future__ import annotations

import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from dray.api.json_text import find_non_json_values, write_json
from tests.fuzz.input_checks import BrokenLawError, check_bytes_input, check_document_input
from tests.fuzz.mutations import broken
from tests.fuzz.raw_bytes import raw
from tests.fuzz.shrink import small_bytes, small_document

LONGEST = 20.0
"""Seconds that one input may take, on a machine that does other things as well."""


TOO_SLOW = "too slow"


class TooSlowError(Exception):
    """The check of an input took too long."""


@dataclass(frozen=True)
class Mode:
    """How inputs are made, how they are checked, and how a failing one is minimised."""

    make: Callable[[Random], Any]
    send: Callable[[Any, Random], str]
    small: Callable[[Any, Callable[[Any], bool]], Any]


MODES = {
    "structured": Mode(broken, check_document_input, small_document),
    "raw": Mode(raw, check_bytes_input, small_bytes),
}


@dataclass
class Failure:
    """One way to fail, with the first input that showed it."""

    mode: str
    index: int
    signature: str
    error: str


@dataclass
class Report:
    """The outcomes of some inputs."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    slowest: tuple[float, str, int] = (0.0, "", -1)

    @property
    def failed(self) -> int:
        return sum(count for outcome, count in self.outcomes.items() if outcome.startswith("FAILED"))

    @property
    def passed(self) -> int:
        return self.outcomes.total() - self.failed

    def add(self, other: Report) -> None:
        self.outcomes += other.outcomes
        known = {failure.signature for failure in self.failures}
        self.failures += (failure for failure in other.failures if failure.signature not in known)
        self.slowest = max(self.slowest, other.slowest)


def make_input(mode: str, seed: str, index: int) -> tuple[Any, Random]:
    """Make an input by its number, and the source of random choices for its check."""
    random = Random(f"{seed}:{mode}:{index}")
    return MODES[mode].make(random), Random(f"{seed}:{mode}:{index}:way")


def run(mode: str, seed: str, start: int, stop: int) -> Report:
    """Check a range of inputs."""
    report = Report()
    for index in range(start, stop):
        given, way = make_input(mode, seed, index)
        began = time.perf_counter()
        try:
            with _limit_time():
                outcome = MODES[mode].send(given, way)
        except Exception as error:
            signature = compute_signature(error)
            outcome = f"FAILED {signature}"
            if all(failure.signature != signature for failure in report.failures):
                report.failures.append(Failure(mode, index, signature, _format_error(error)))
        report.outcomes[f"{mode}: {outcome}" if not outcome.startswith("FAILED") else outcome] += 1
        report.slowest = max(report.slowest, (time.perf_counter() - began, mode, index))
    return report


@contextmanager
def _limit_time() -> Iterator[None]:
    """Make a check that never ends a failure."""

    def late(_number: int, _frame: Any) -> None:
        raise TooSlowError(f"still not done after {LONGEST} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def compute_signature(error: BaseException) -> str:
    """Return the signature of a failure: the property, or the exception and where it came from."""
    if isinstance(error, BrokenLawError):
        return f"law: {error}"
    if isinstance(error, TooSlowError):
        return TOO_SLOW
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "dray" in Path(frame.filename).parts] or frames
    last = ours[-1]
    return f"{type(error).__name__} in {Path(last.filename).name}:{last.lineno} {last.name}"


def _format_error(error: BaseException) -> str:
    return ascii("".join(traceback.format_exception_only(error)).strip())[1:-1][:500]


def small(failure: Failure, seed: str) -> Any:
    """Return the input of a failure without everything the failure does not need."""
    given, _ = make_input(failure.mode, seed, failure.index)
    mode = MODES[failure.mode]
    if failure.signature == TOO_SLOW:
        return given  # to try it a thousand times would take a day

    def fails(candidate: Any) -> bool:
        try:
            with _limit_time():
                mode.send(candidate, Random(f"{seed}:{failure.mode}:{failure.index}:way"))
        except Exception as error:
            return compute_signature(error) == failure.signature
        return False

    return mode.small(given, fails)


def format_input(given: Any) -> str:
    """Format an input as Python source."""
    try:
        return ascii(given)
    except (RecursionError, ValueError):  # nested beyond what Python prints, or a number of 5,000 digits
        return f"<{type(given).__name__} that cannot be printed; repeat the run to have it>"


def save_input(folder: Path, name: str, given: Any) -> Path:
    """Write an input down: bytes as they are, documents as JSON, or as Python if JSON cannot hold them."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(given, bytes):
        path, data = folder / f"{name}.bin", given
    elif find_non_json_values(given):
        path, data = folder / f"{name}.txt", format_input(given).encode()
    else:
        path, data = folder / f"{name}.json", write_json(given)
    path.write_bytes(data)
    return path
