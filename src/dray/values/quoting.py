"""Quoting of input in messages: in backticks, on one line, truncated."""

from __future__ import annotations

MAX_QUOTED_LENGTH = 64


def quote_text(text: str) -> str:
    """Return the text in backticks; long texts are truncated, unprintable characters escaped."""
    short = text if len(text) <= MAX_QUOTED_LENGTH else text[:20] + "…"
    return f"`{''.join(c if c.isprintable() else ascii(c)[1:-1] for c in short)}`"
