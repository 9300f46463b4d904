"""Text for the terminal: removal of control characters, counted nouns, and messages on standard error.

Rules for this file: text from files and servers is sanitized before it reaches a terminal.
"""

from __future__ import annotations

import re

import click

_CONTROL_CHARS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def sanitize_text(text: str) -> str:
    """Escape the characters that could control a terminal."""
    return _CONTROL_CHARS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def sanitize_line(text: str) -> str:
    """Escape newlines too: text from an object must not look like a line of ours."""
    return sanitize_text(text).replace("\n", "\\n")


def format_count(count: int, noun: str) -> str:
    """Format a number with its noun in singular or plural."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def print_message(text: str) -> None:
    """Print a line for people on standard error, beside the data."""
    click.echo(f"dray: {sanitize_text(text)}", err=True)
