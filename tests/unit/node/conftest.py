"""Tests of the claim preparer are coroutines."""

from __future__ import annotations

from tests.contract.running import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
