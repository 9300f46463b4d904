"""Generated identifiers: uids of objects and audit ids of requests, both in the form of UUIDs.

Theory of operation: a uid is random in every bit that a UUID of version 4 leaves free. Random bytes are read
for many uids at a time, because one system call per uid would cost more than the rest of the work. The id of
a request only has to be unique: it has a random part per process, and a counter.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Final

_BYTES: Final = 16
_UIDS_PER_READ: Final = 256
_VARIANTS: Final = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


def generate_uids(random_bytes: Callable[[int], bytes] = os.urandom) -> Iterator[str]:
    """An endless sequence of random UUIDs."""
    size = 2 * _BYTES
    while True:
        digits = random_bytes(_BYTES * _UIDS_PER_READ).hex()
        for start in range(0, len(digits), size):
            uid = digits[start : start + size]
            variant = _VARIANTS[uid[16]]
            yield f"{uid[:8]}-{uid[8:12]}-4{uid[13:16]}-{variant}{uid[17:20]}-{uid[20:]}"


def generate_request_ids() -> Iterator[str]:
    """An endless sequence of ids that are unique across processes."""
    process = str(uuid.uuid4())[:-12]
    return (f"{process}{number:012x}" for number in itertools.count(1))
