"""Identifiers are unique UUIDs."""

from __future__ import annotations

import itertools
import uuid

from dray.server.objects.identifiers import generate_request_ids, generate_uids

MANY = 1000


def test_uids_are_random_uuids_and_all_different() -> None:
    found = list(itertools.islice(generate_uids(), MANY))
    assert len(set(found)) == MANY
    for text in found:
        read = uuid.UUID(text)
        assert (str(read), read.version, read.variant) == (text, 4, uuid.RFC_4122)


def test_every_free_bit_of_a_uid_is_random() -> None:
    ones = next(generate_uids(lambda size: b"\xff" * size))
    zeros = next(generate_uids(lambda size: b"\x00" * size))
    assert ones == "ffffffff-ffff-4fff-bfff-ffffffffffff"
    assert zeros == "00000000-0000-4000-8000-000000000000"


def test_request_ids_are_unique_across_processes() -> None:
    here, there = generate_request_ids(), generate_request_ids()
    found = [*itertools.islice(here, MANY), *itertools.islice(there, MANY)]
    assert len(set(found)) == 2 * MANY
    assert all(str(uuid.UUID(text)) == text for text in found)
