"""Semantic equality of values."""

from __future__ import annotations

import msgspec
import pytest

from dray.api.resource import OpaqueDeviceConfiguration
from dray.api.validation.semantic_equality import is_semantically_equal


def holder(text):
    """A struct with opaque bytes, by force: a struct brings JSON to a form of its own."""
    made = OpaqueDeviceConfiguration(driver="d")
    msgspec.structs.force_setattr(made, "parameters", msgspec.Raw(text))
    return made


SAME = [
    (b'{"a":1}', b'{ "a" : 1 }'),
    (b'{"a":1,"b":2}', b'{"b":2,"a":1}'),
    (b'{"a":1.50}', b'{"a":1.5}'),
    (b'{"a":"\\u0041"}', b'{"a":"A"}'),
    (b"{", b"{"),
    (b"", b""),
]
DIFFERENT = [
    (b'{"a":1}', b'{"a":2}'),
    (b'{"a":1}', b'{"a":true}'),
    (b'{"a":0}', b'{"a":false}'),
    (b'{"a":[1,2]}', b'{"a":[2,1]}'),
    (b'{"a":null}', b"{}"),
    (b"{", b"{{"),
    (b"{}", b""),
    (b"[" * 5000, b"{}"),
    (b"1e999", b"2e999"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_same(one, other):
    assert is_semantically_equal(holder(one), holder(other))
    assert is_semantically_equal((holder(one),), (holder(other),))
    assert is_semantically_equal({"k": holder(one)}, {"k": holder(other)})


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different(one, other):
    assert not is_semantically_equal(holder(one), holder(other))


def test_devices_that_differ():
    assert not is_semantically_equal((holder(b"{}"),), (holder(b"{}"), holder(b"{}")))
    assert not is_semantically_equal({"k": holder(b"{}")}, {"l": holder(b"{}")})
    assert not is_semantically_equal(holder(b"{}"), None)
    assert not is_semantically_equal("a", "b")
