"""Share IDs: random UUIDs for the shares of devices that several claims use.

Theory of operation: reading random bytes from the system costs more than everything else about an ID, and the
scheduler waits for one per share. So IDs are generated in batches; taking one from the list is a single step,
also with threads. A forked process drops the IDs it inherited, or it would use the same ones as its parent.
"""

from __future__ import annotations

import os

_BATCH_SIZE = 16
_generated: list[str] = []
_VARIANTS = {digit: "89ab"[number & 3] for number, digit in enumerate("0123456789abcdef")}
"""The digit of the variant field for each random digit: two of its bits are fixed, two stay random."""

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
