"""Waiting for the first of several asyncio tasks, and ending tasks.

Theory of operation: a task that nobody waits for goes on, and its error is lost. `wait_for_first` therefore
cancels the tasks that did not end first, waits until they have ended, and raises the error of the one that
did. An error that a cancelled task raises on its way out goes to the exception handler of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any


async def wait_for_first(*awaitables: Awaitable[object]) -> int:
    """Wait until one awaitable has ended, cancel the others, and wait until they have ended, too.

    Returns the position of the one that ended, the leftmost of several, or raises its error.
    """
    tasks = [asyncio.ensure_future(each) for each in awaitables]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first = next(position for position, task in enumerate(tasks) if task.done())
        tasks[first].result()
        return first
    finally:
        await cancel_and_wait(*tasks)


async def cancel_and_wait(*tasks: asyncio.Future[Any]) -> None:
    """Cancel the tasks that have not ended, and wait until they have."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        # Not `gather`: a second cancellation would reach the tasks again and interrupt their clean-up.
        await asyncio.wait(running)
    for task in running:
        error = None if task.cancelled() else task.exception()
        # A cancelled `gather` has the cancellation as its error.
        if error is not None and not isinstance(error, asyncio.CancelledError):
            _report(task, error)


def _report(task: asyncio.Future[Any], error: BaseException) -> None:
    details = {"message": "a cancelled task failed on its way out", "exception": error, "future": task}
    asyncio.get_running_loop().call_exception_handler(details)
