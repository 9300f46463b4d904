"""Identities that must differ from all others: made from chance, in the one place that has it.

Theory of operation: asking the system for chance costs more than everything else about an identity, and every
share waits for it. So chance is fetched for many at once and kept in `_digits`; taking one off a list is a
single step, also with threads. A forked process forgets what it inherited, or it would give out the same.
"""

from __future__ import annotations

import os

_AT_ONCE = 64
_digits: list[str] = []
_VARIANTS = {digit: "89ab"[number & 3] for number, digit in enumerate("0123456789abcdef")}
"""The two bits of a digit that are left to chance, and the digit they become."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_digits.clear)


def new_share_id() -> str:
    """A random UUID (version 4) in lower case."""
    try:
        digits = _digits.pop()
    except IndexError:
        fresh = os.urandom(16 * _AT_ONCE).hex()
        _digits.extend([fresh[i : i + 32] for i in range(32, len(fresh), 32)])
        digits = fresh[:32]
    return (
        f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}"
    )
