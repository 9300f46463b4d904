"""Generated names: a prefix and a random suffix, as Kubernetes completes `metadata.generateName`.

Theory of operation: the suffix has five characters of an alphabet without vowels, so that it forms no words.
The server completes the names of objects that have none; a client that writes an object and a reference to it
in one transaction has to know the name before, and completes it in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

NAME_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of suffixes."""
SUFFIX_LENGTH: Final = 5
MAX_PREFIX_LENGTH: Final = 63 - SUFFIX_LENGTH
"""Of a longer prefix only the beginning is used."""


def complete_name(prefix: str, random_int: Callable[[int], int]) -> str:
    """Return a name that begins with a prefix; `random_int` draws a number below a limit."""
    suffix = "".join([NAME_ALPHABET[random_int(len(NAME_ALPHABET))] for _ in range(SUFFIX_LENGTH)])
    return prefix[:MAX_PREFIX_LENGTH] + suffix
