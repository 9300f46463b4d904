"""The table of reasons."""

from __future__ import annotations

import pytest

from dray.allocator.refusals import REASON_TEXTS, RefusalReason


@pytest.mark.parametrize("reason", RefusalReason)
def test_every_reason_has_a_text(reason):
    text = REASON_TEXTS[reason]
    assert text
    assert text[0].islower()
    assert not text.endswith(".")


def test_the_table_has_no_others():
    assert REASON_TEXTS.keys() == set(RefusalReason)
