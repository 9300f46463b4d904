"""Calls of the author's methods as coroutines: plain methods run in threads, async ones in the event loop.

Rules for this file: exceptions of the author are not caught; the caller decides how to report them.
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
"""The prefix of the names of threads that run an author's methods."""


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
        result = await self.run_in_thread(method, claim)
        if inspect.isawaitable(result):
            await result

    async def list_health(self) -> list[DeviceState]:
        """Call `health`."""
        return await self._collect(getattr(self.driver, "health"))  # noqa: B009 - drivers need not have it

    async def run_in_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Run a call that may block in a thread."""
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, call_containing_exit, call, *arguments
        )

    def close(self) -> None:
        """Let idle threads end, without waiting for the busy ones."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _collect(self, method: Callable[..., Any], *arguments: Any) -> list[Any]:
        if inspect.isasyncgenfunction(method):
            return await _drain(method(*arguments))
        if inspect.iscoroutinefunction(method):
            return _to_list(await method(*arguments), method)
        # A generator does its work while it is drained, so it is drained in the thread too.
        result = await self.run_in_thread(lambda: _materialize(method(*arguments)))
        if inspect.isawaitable(result):
            result = await result
        return await _drain(result) if isinstance(result, AsyncIterable) else _to_list(result, method)


def call_containing_exit(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function, and turn `sys.exit` in it into an error: one claim must not end the driver."""
    try:
        return call(*arguments)
    except SystemExit as exiting:
        raise RuntimeError(f"it called sys.exit({exiting.code!r})") from exiting


def _materialize(result: Any) -> Any:
    return list(result) if isinstance(result, Iterable) else result


def _to_list(result: Any, method: Callable[..., Any]) -> list[Any]:
    if result is None:
        return []
    if not isinstance(result, Iterable):
        raise InputError(
            f"`{method.__name__}` must return a list, or yield one thing after the other; it returned "
            f"`{type(result).__name__}`"
        )
    return list(result)


async def _drain(result: AsyncIterable[Any]) -> list[Any]:
    return [each async for each in result]
