"""Backoff grows with jitter; rates are limited."""

from __future__ import annotations

import asyncio

import pytest

from dray.client.timing import Backoff, RateLimiter, TimeSource
from dray.clock import ManualClock
from tests.unit.client.fakeapi import InstantTime


def test_waits_double_up_to_the_longest_and_begin_again():
    clock = ManualClock()
    backoff = Backoff(TimeSource(clock, random_float=lambda: 1.0), initial=1, maximum=5)
    assert [backoff.compute_delay() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.compute_delay() == 1
    assert backoff.compute_delay() == 2
    clock.advance(10.1)
    assert backoff.compute_delay() == 1


def test_waits_are_spread_over_their_upper_half():
    assert Backoff(TimeSource(ManualClock(), random_float=lambda: 0.0), initial=1).compute_delay() == 0.5
    assert Backoff(TimeSource(ManualClock(), random_float=lambda: 0.5), initial=1).compute_delay() == 0.75


async def test_a_wait_is_at_least_what_was_asked_for():
    time = InstantTime()
    await Backoff(time.time_source, initial=1).wait(min_delay=9)
    assert time.slept == [9]


async def test_a_limiter_lets_a_burst_through_and_then_keeps_the_rate():
    clock, slept = ManualClock(), []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    limiter = RateLimiter(10, 3, TimeSource(clock, sleep))
    await asyncio.gather(*(limiter.acquire() for _ in range(6)))
    assert slept == pytest.approx([0.1, 0.2, 0.3])
    clock.advance(60)
    await asyncio.gather(*(limiter.acquire() for _ in range(3)))
    assert len(slept) == 3


def test_a_turn_is_there_or_not():
    time = InstantTime()
    limiter = RateLimiter(1, 2, time.time_source)
    assert [limiter.try_acquire() for _ in range(3)] == [True, True, False]
    time.clock.advance(1)
    assert [limiter.try_acquire() for _ in range(2)] == [True, False]


@pytest.mark.parametrize(("qps", "burst"), [(0, 1), (-1, 1), (1, 0)])
def test_rates_that_let_nobody_through_are_refused(qps, burst):
    with pytest.raises(ValueError, match="expected a rate above 0"):
        RateLimiter(qps, burst, TimeSource())
