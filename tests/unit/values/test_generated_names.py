"""Generated names: a prefix, and five random characters."""

from __future__ import annotations

from random import Random

from dray.values.generated_names import MAX_PREFIX_LENGTH, NAME_ALPHABET, complete_name
from dray.values.names import MAX_LABEL, check_dns_label


def test_each_character_is_drawn_from_the_whole_alphabet():
    draws = iter([0, 1, len(NAME_ALPHABET) - 1, 2, 3])
    assert complete_name("p-gpu-", lambda limit: next(draws) % limit) == "p-gpu-bc9df"


def test_names_differ_and_are_valid_however_long_the_prefix_is():
    random_int = Random(1).randrange
    names = {complete_name("a" * length, random_int) for length in range(1, 100)}
    assert len(names) == 99
    assert all(not check_dns_label(name) for name in names)
    assert max(map(len, names)) == MAX_LABEL == MAX_PREFIX_LENGTH + 5
