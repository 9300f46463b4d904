"""How a piece of input appears in a message: in backticks, on one line, never longer than a line."""

from __future__ import annotations

MAX_QUOTED_LENGTH = 64


def quote_text(text: str) -> str:
    """The text in backticks; long texts are cut, characters that do not print are escaped."""
    short = text if len(text) <= MAX_QUOTED_LENGTH else text[:20] + "…"
    return f"`{''.join(c if c.isprintable() else ascii(c)[1:-1] for c in short)}`"
