"""The table of reasons."""

from __future__ import annotations

import pytest

from dray.allocator.refusals import REASON_TEXTS, RefusalReason


@pytest.mark.parametrize("reason", RefusalReason)
def test_every_reason_has_a_text_and_a_hint(reason):
    text, hint = REASON_TEXTS[reason]
    assert text
    assert hint
    for words in (text, hint):
        assert words[0].islower()
        assert not words.endswith(".")


def test_the_table_has_no_others():
    assert REASON_TEXTS.keys() == set(RefusalReason)
