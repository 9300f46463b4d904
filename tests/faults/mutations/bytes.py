"""Bytes that were good once: cut, turned, doubled, or replaced."""

from __future__ import annotations

import random


def spoiled(good: bytes, chance: random.Random, most: int = 4) -> bytes:
    """Something else than `good`, and seldom much better."""
    while True:
        content = bytearray(good)
        for _ in range(chance.randrange(1, most + 1)):
            _once(content, chance)
        if bytes(content) != good:
            return bytes(content)


def _once(content: bytearray, chance: random.Random) -> None:
    place, way = chance.randrange(len(content) + 1), chance.randrange(7)
    if way == 0:
        del content[place:]
    elif way == 1 and place < len(content):
        content[place] ^= 1 << chance.randrange(8)
    elif way == 2:
        content[place:place] = chance.randbytes(chance.randrange(1, 9))
    elif way == 3:
        content += content[place:]
    elif way == 4:
        del content[place : place + chance.randrange(1, 9)]
    elif way == 5:
        other = chance.randrange(len(content) + 1)
        content[place : place + 8] = content[other : other + 8]
    else:
        content[:] = chance.randbytes(chance.randrange(64))
