"""The staged registry decides without a pause."""

from __future__ import annotations

import asyncio

import pytest

from dray.server.transactions.staged_registry import run_at_once


async def _answer() -> int:
    return 42


async def _wait() -> int:
    await asyncio.sleep(0)
    return 42


async def _refuse() -> int:
    raise ZeroDivisionError


def test_a_decision_is_made_at_once() -> None:
    assert run_at_once(_answer()) == 42
    with pytest.raises(ZeroDivisionError):
        run_at_once(_refuse())


def test_a_decision_that_waits_is_a_fault() -> None:
    with pytest.raises(RuntimeError, match="waits while it is decided"):
        run_at_once(_wait())
