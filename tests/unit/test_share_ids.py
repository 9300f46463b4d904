"""Share ids are random UUIDs of version 4 in lower case (C-33)."""

from __future__ import annotations

import os
import uuid

import pytest

from dray.share_ids import generate_share_id


@pytest.mark.req("K5075-079", "K5075-118")
def test_share_ids_are_lower_case_uuids_and_differ():
    made = [generate_share_id() for _ in range(200)]
    assert len(set(made)) == 200
    for text in made:
        parsed = uuid.UUID(text)
        assert (str(parsed), parsed.version, parsed.variant) == (text, 4, uuid.RFC_4122)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_does_not_repeat_what_its_parent_says():
    generate_share_id()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, generate_share_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 36).decode() not in {generate_share_id() for _ in range(100)}
    os.close(reading)
    os.close(writing)
