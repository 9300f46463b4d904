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

MAX_THREADS: Final = 32
THREAD_NAME_PREFIX: Final = "driver-"
"""How the names of threads begin in which an author's methods run."""


class AsyncDriver:
    """The methods of one driver, as coroutines."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._threads = ThreadPoolExecutor(
            MAX_THREADS, thread_name_prefix=f"{THREAD_NAME_PREFIX}{driver.name}"
        )

    @property
    def has_health(self) -> bool:
        """Whether the driver has a method `health`."""
        return callable(getattr(self.driver, "health", None))

    async def list_devices(self) -> list[Any]:
        """Call `devices`."""
        return await self._collect(self.driver.devices)

    async def prepare(self, claim: Claim | ClassicClaim) -> list[Ready]:
        """Call `prepare`."""
        return await self._collect(self.driver.prepare, claim)

    async def unprepare(self, claim: Claim | ClassicClaim) -> None:
        """Call `unprepare`."""
        method = self.driver.unprepare
        if inspect.iscoroutinefunction(method):
            await method(claim)
            return
        answer = await self.run_in_thread(method, claim)
        if inspect.isawaitable(answer):
            await answer

    async def list_health(self) -> list[DeviceState]:
        """Call `health`."""
        return await self._collect(getattr(self.driver, "health"))  # noqa: B009 - drivers need not have it

    async def run_in_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """The result of something that may wait."""
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, call_containing_exit, call, *arguments
        )

    def close(self) -> None:
        """Let threads end that have nothing more to do."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _collect(self, method: Callable[..., Any], *arguments: Any) -> list[Any]:
        if inspect.isasyncgenfunction(method):
            return await _drain(method(*arguments))
        if inspect.iscoroutinefunction(method):
            return _to_list(await method(*arguments), method)
        # A generator does its work while it is drained: that belongs into the thread too.
        answer = await self.run_in_thread(lambda: _materialize(method(*arguments)))
        if inspect.isawaitable(answer):
            answer = await answer
        return await _drain(answer) if isinstance(answer, AsyncIterable) else _to_list(answer, method)


def call_containing_exit(call: Callable[..., Any], *arguments: Any) -> Any:
    """One claim must not end the driver, whatever some library thinks of a failure."""
    try:
        return call(*arguments)
    except SystemExit as left:
        raise RuntimeError(f"it called sys.exit({left.code!r})") from left


def _materialize(answer: Any) -> Any:
    return list(answer) if isinstance(answer, Iterable) else answer


def _to_list(answer: Any, method: Callable[..., Any]) -> list[Any]:
    if answer is None:
        return []
    if not isinstance(answer, Iterable):
        raise InputError(
            f"`{method.__name__}` must return a list, or yield one thing after the other; it returned "
            f"`{type(answer).__name__}`"
        )
    return list(answer)


async def _drain(answer: AsyncIterable[Any]) -> list[Any]:
    return [each async for each in answer]
