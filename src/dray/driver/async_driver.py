"""Asking the author's methods: plain ones in threads, async ones in the event loop, generators drained.

Rules for this file: what an author raises comes out as it is; who calls decides what to say about it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from dray.driver.base import Claim, ClassicClaim, DeviceState, Driver, Ready
from dray.errors import InputError

THREADS: Final = 32
THREAD: Final = "driver-"
"""How the names of threads begin in which an author's methods run."""


class Author:
    """The methods of one driver, as coroutines."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=f"{THREAD}{driver.name}")

    @property
    def tells_health(self) -> bool:
        """Whether the driver has a method `health`."""
        return callable(getattr(self.driver, "health", None))

    async def devices(self) -> list[Any]:
        """What `devices` says."""
        return await self._several(self.driver.devices)

    async def prepare(self, claim: Claim | ClassicClaim) -> list[Ready]:
        """What `prepare` says."""
        return await self._several(self.driver.prepare, claim)

    async def unprepare(self, claim: Claim | ClassicClaim) -> None:
        """Until `unprepare` is done."""
        method = self.driver.unprepare
        if inspect.iscoroutinefunction(method):
            await method(claim)
            return
        answer = await self.in_thread(method, claim)
        if inspect.isawaitable(answer):
            await answer

    async def health(self) -> list[DeviceState]:
        """What `health` says."""
        return await self._several(getattr(self.driver, "health"))  # noqa: B009 - drivers need not have it

    async def in_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """The result of something that may wait."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, contained, call, *arguments)

    def close(self) -> None:
        """Let threads end that have nothing more to do."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _several(self, method: Callable[..., Any], *arguments: Any) -> list[Any]:
        if inspect.isasyncgenfunction(method):
            return await _drained(method(*arguments))
        if inspect.iscoroutinefunction(method):
            return _listed(await method(*arguments), method)
        # A generator does its work while it is drained: that belongs into the thread too.
        answer = await self.in_thread(lambda: _started(method(*arguments)))
        if inspect.isawaitable(answer):
            answer = await answer
        return await _drained(answer) if isinstance(answer, AsyncIterable) else _listed(answer, method)


def contained(call: Callable[..., Any], *arguments: Any) -> Any:
    """One claim must not end the driver, whatever some library thinks of a failure."""
    try:
        return call(*arguments)
    except SystemExit as left:
        raise RuntimeError(f"it called sys.exit({left.code!r})") from left


def _started(answer: Any) -> Any:
    return list(answer) if isinstance(answer, Iterable) else answer


def _listed(answer: Any, method: Callable[..., Any]) -> list[Any]:
    if answer is None:
        return []
    if not isinstance(answer, Iterable):
        raise InputError(
            f"`{method.__name__}` must return a list, or yield one thing after the other; it returned "
            f"`{type(answer).__name__}`"
        )
    return list(answer)


async def _drained(answer: AsyncIterable[Any]) -> list[Any]:
    return [each async for each in answer]
