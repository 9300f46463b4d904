"""Identities that must differ from all others: made from chance, in the one place that has it."""

from __future__ import annotations

from os import urandom

_VARIANTS = "89ab"


def new_share_id() -> str:
    """A random UUID (version 4) in lower case; written out by hand, as every share waits for it."""
    digits = urandom(16).hex()
    variant = _VARIANTS[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
