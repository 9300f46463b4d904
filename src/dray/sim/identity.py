"""Identities that must differ from all others: made from chance, in the one place that has it."""

from __future__ import annotations

from os import urandom

_VARIANTS = {digit: "89ab"[number & 3] for number, digit in enumerate("0123456789abcdef")}
"""The two bits of a digit that are left to chance, and the digit they become."""


def new_share_id() -> str:
    """A random UUID (version 4) in lower case; written out by hand, as every share waits for it."""
    digits = urandom(16).hex()
    variant = _VARIANTS[digits[16]]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
