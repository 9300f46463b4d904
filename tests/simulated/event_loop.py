"""An event loop in virtual time, in which simulated processes take turns in an order drawn from a seed.

Theory of operation: every callback belongs to the process in whose context it was scheduled. A process runs
its callbacks in the order in which they became ready, as the event loop of a real process does; which process
runs next is drawn for each step. Time stands still while any process can run, and then jumps to the next
timer. Work for a thread runs inside the loop: one step does it, a later one reports it, so that a crash may
come between.

A process that has crashed runs no further step: its callbacks and timers are dropped, also those that are
scheduled later, so no `finally` of it writes anything. Its tasks are kept until the end, so that none is
collected as garbage at a moment of the interpreter's choosing.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

START_SECONDS: Final = 1000.0
"""The virtual time at which a simulation begins."""
MIN_DELAY_SECONDS: Final = 1e-6
MAX_STEPS_AT_ONCE: Final = 50_000
"""Steps without any virtual time passing after which something must be wrong."""
_FEW_TASKS: Final = 256
"""Tasks of a process that are kept before those that are done are dropped."""
_MAX_COLLECTIONS: Final = 10
"""How often garbage is collected at the end: a dropped coroutine may hold others until it is cleared."""


class TimeStandsStillError(Exception):
    """The processes keep each other busy and virtual time does not pass."""


class SimulatedProcess:
    """The callbacks of one process that are ready to run."""

    def __init__(self, name: str, number: int = 0) -> None:
        self.name = name
        self.number = number
        self.alive = True
        self.paused = False
        self.ready: deque[SimulatedHandle] = deque()
        self.context = contextvars.copy_context()
        self.context.run(CURRENT_PROCESS.set, self)
        self.tasks: list[asyncio.Task[Any]] = []
        self._max_tasks = _FEW_TASKS
        self.on_crash: list[Callable[[], None]] = []

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Keep a task until it is done."""
        if len(self.tasks) >= self._max_tasks:
            self.tasks = [each for each in self.tasks if not each.done()]
            self._max_tasks = max(_FEW_TASKS, 2 * len(self.tasks))
        self.tasks.append(task)

    def __repr__(self) -> str:
        return f"{self.name}#{self.number}"


CURRENT_PROCESS: Final[contextvars.ContextVar[SimulatedProcess]] = contextvars.ContextVar("CURRENT_PROCESS")


class SimulatedHandle:
    """A scheduled callback; that of a timer has a time."""

    __slots__ = ("args", "callback", "context", "done", "time")

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: contextvars.Context, time: float
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.time = time
        self.done = False

    def cancel(self) -> None:
        self.done = True

    def cancelled(self) -> bool:
        return self.done

    def when(self) -> float:
        return self.time


class NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address in memory."""

    _number = 0

    def __hash__(self) -> int:
        return self._number


class NumberedFuture(asyncio.Future[Any]):
    """A future whose place in a set does not depend on its address in memory."""

    _number = 0

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop:
    """The event loop of a simulation: as much of an `asyncio` loop as tasks, futures and timers need."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._draw = random.random
        self._time = START_SECONDS
        self._timers: list[tuple[float, int, SimulatedHandle]] = []
        self._numbers = 0
        self._active: list[SimulatedProcess] = []
        self._processes: list[SimulatedProcess] = []
        self._stopped = False
        self.steps = self._steps_before = 0
        self.job_delay: Callable[[], float] = lambda: 0.0
        """How long work for a thread takes."""
        self.shuffles = False
        """Whether a process may also run its own callbacks in another order than they became ready."""
        self.failures: list[dict[str, Any]] = []
        """What the exception handler was told."""
        self.outside = self.start_process("outside")

    # --- processes ---

    def start_process(self, name: str, number: int = 0) -> SimulatedProcess:
        """Start a process that does nothing yet."""
        process = SimulatedProcess(name, number)
        self._processes.append(process)
        return process

    def spawn(self, process: SimulatedProcess, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in a process."""
        return self.create_task(work, context=process.context)

    def crash(self, process: SimulatedProcess) -> None:
        """End a process at once: nothing of it runs again."""
        process.alive = False
        process.ready.clear()
        if process in self._active:
            self._active.remove(process)
        for each in process.on_crash:
            each()

    def pause(self, process: SimulatedProcess) -> None:
        """Stop a process where it is, as a stopped or swapped-out process does."""
        process.paused = True
        if process in self._active:
            self._active.remove(process)

    def resume(self, process: SimulatedProcess) -> None:
        """Let a paused process continue."""
        if process.paused and process.alive:
            process.paused = False
            if process.ready:
                self._active.append(process)

    def reseed(self, seed: int) -> None:
        """Draw the order of all further steps from another seed."""
        self._random.seed(seed)

    # --- what asyncio needs ---

    def time(self) -> float:
        return self._time

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        future = NumberedFuture(loop=self)  # type: ignore[arg-type]
        self._numbers += 1
        future._number = self._numbers
        return future

    def create_task(
        self, coro: Any, *, name: object = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        self._numbers += 1
        NumberedTask._number = self._numbers  # read by the constructor, which puts the task into a set
        context = contextvars.copy_context() if context is None else context.copy()
        task = NumberedTask(coro, loop=self, name="", context=context)  # type: ignore[arg-type]
        task._number = self._numbers
        context.get(CURRENT_PROCESS, self.outside).keep(task)
        return task

    def call_soon(
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> SimulatedHandle:
        if context is None:
            context = contextvars.copy_context()
        handle = SimulatedHandle(callback, args, context, 0.0)
        self._enqueue(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> SimulatedHandle:
        # A clock always moves on, however short a sleep is.
        when = self._time + max(delay, MIN_DELAY_SECONDS) if delay > 0 else self._time
        return self.call_at(when, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> SimulatedHandle:
        if context is None:
            context = contextvars.copy_context()
        handle = SimulatedHandle(callback, args, context, when)
        self._numbers += 1
        heappush(self._timers, (when, self._numbers, handle))
        return handle

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Do work for a thread in one step, and report it in a later one."""
        future = self.create_future()

        def work() -> None:
            outcome: Any = None
            error: Exception | None = None
            try:
                outcome = func(*args)
            except Exception as raised:
                error = raised
            self.call_later(self.job_delay(), report, outcome, error)

        def report(outcome: Any, error: Exception | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(outcome)
            else:
                future.set_exception(error)

        self.call_later(self.job_delay(), work)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    # --- running ---

    def _enqueue(self, handle: SimulatedHandle) -> None:
        process = handle.context.get(CURRENT_PROCESS, self.outside)
        if not process.alive:
            return
        ready = process.ready
        if not ready and not process.paused:
            self._active.append(process)
        ready.append(handle)

    def stop(self) -> None:
        """End `run` after this step."""
        self._stopped = True

    def run(self, until: float) -> None:
        """Run until a virtual time, or until `stop` is called."""
        self._stopped = False
        asyncio._set_running_loop(self)  # type: ignore[arg-type]
        try:
            while not self._stopped:
                if self._active:
                    self._run_step()
                elif not self._fire_timers(until):
                    self._time = max(self._time, until)
                    return
        finally:
            asyncio._set_running_loop(None)

    def _run_step(self) -> None:
        active = self._active
        count = len(active)
        place = int(self._draw() * count) if count > 1 else 0
        process = active[place]
        ready = process.ready
        if self.shuffles and len(ready) > 1:
            ready.rotate(-int(self._draw() * len(ready)))
        handle = ready.popleft()
        if not ready:
            active[place] = active[-1]
            active.pop()
        if handle.done:
            return
        self.steps += 1
        if self.steps - self._steps_before > MAX_STEPS_AT_ONCE:
            raise TimeStandsStillError(f"{process} does not come to an end: {handle.callback!r}")
        try:
            handle.context.run(handle.callback, *handle.args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as raised:
            self.failures.append({"message": f"in {handle.callback!r}", "exception": raised})

    def _fire_timers(self, until: float) -> bool:
        """Advance the time to the next timer and make it ready; False when none is due by `until`."""
        timers = self._timers
        while timers:
            when, _, handle = timers[0]
            if handle.done or not handle.context.get(CURRENT_PROCESS, self.outside).alive:
                heappop(timers)
                continue
            if when > until:
                return False
            heappop(timers)
            if when > self._time:
                self._time = when
                self._steps_before = self.steps
            self._enqueue(handle)
            return True
        return False

    def close(self) -> None:
        """Drop everything that is left; nothing of it runs."""
        for process in self._processes:
            process.alive = False
            process.ready.clear()
            for task in process.tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._timers.clear()
        self._active.clear()
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            # Coroutines that are dropped in the middle complain that they cannot wait any more.
            for process in self._processes:
                process.tasks.clear()
            self._processes.clear()
            for _ in range(_MAX_COLLECTIONS):
                if not gc.collect():
                    break
        finally:
            sys.unraisablehook = hook
