"""New identities: uids of objects, and ids of requests; both look like the UUIDs that clients expect.

Theory of operation: a uid is random in every bit that a UUID of version 4 leaves free. Chance is fetched for
many of them at a time: a system call for each would cost more than everything else about it. The id of a
request need only be another one each time: it is random once for a process, and counted from there.
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
    """Random UUIDs, without end."""
    size = 2 * _BYTES
    while True:
        digits = random_bytes(_BYTES * _UIDS_PER_READ).hex()
        for start in range(0, len(digits), size):
            one = digits[start : start + size]
            variant = _VARIANTS[one[16]]
            yield f"{one[:8]}-{one[8:12]}-4{one[13:16]}-{variant}{one[17:20]}-{one[20:]}"


def generate_request_ids() -> Iterator[str]:
    """Ids that are different from each other, and from those of every other process."""
    process = str(uuid.uuid4())[:-12]
    return (f"{process}{number:012x}" for number in itertools.count(1))
