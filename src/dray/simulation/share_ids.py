"""Identities that must differ from all others: made from chance, in the one place that has it.

Theory of operation: asking the system for chance costs more than everything else about an identity, and every
share waits for it. So a few are made at once and kept; taking one off a list is a single step, also with
threads. A forked process forgets what it inherited, or it would give out the same.
"""

from __future__ import annotations

import os

_BATCH_SIZE = 16
_generated: list[str] = []
_VARIANTS = {digit: "89ab"[number & 3] for number, digit in enumerate("0123456789abcdef")}
"""The two bits of a digit that are left to chance, and the digit they become."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_generated.clear)


def generate_share_id() -> str:
    """A random UUID (version 4) in lower case."""
    try:
        return _generated.pop()
    except IndexError:
        fresh, *rest = _generate_ids(_BATCH_SIZE)
        _generated.extend(rest)
        return fresh


def _generate_ids(count: int) -> list[str]:
    digits = os.urandom(16 * count).hex()
    return [
        f"{d[:8]}-{d[8:12]}-4{d[13:16]}-{_VARIANTS[d[16]]}{d[17:20]}-{d[20:]}"
        for d in (digits[start : start + 32] for start in range(0, 32 * count, 32))
    ]
