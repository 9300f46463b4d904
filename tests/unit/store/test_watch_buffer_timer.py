"""The timer of a watch buffer on uvloop, which counts whole milliseconds and so fires up to one early."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dray.store.watch_buffer import WatchBuffer

uvloop = pytest.importorskip("uvloop")
ROUNDS = 20


def test_a_time_out_takes_one_timer() -> None:
    set_at: list[float] = []

    class CountingLoop(uvloop.Loop):  # type: ignore[misc, name-defined]
        def call_at(self, when: float, callback: Callable[..., object], *args: Any, **more: Any) -> Any:
            set_at.append(when)
            return super().call_at(when, callback, *args, **more)

    async def time_out() -> list[object]:
        return [await WatchBuffer(10).get(0.001 + number * 0.00017) for number in range(ROUNDS)]

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        assert runner.run(time_out()) == [None] * ROUNDS
    assert len(set_at) == ROUNDS
