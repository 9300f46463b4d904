"""Rows of the ledger: keys and bytes."""

from __future__ import annotations

import pytest

from dray.claims.ledger.rows import (
    LEDGER_PREFIX,
    CounterSetId,
    DeviceId,
    DeviceRow,
    Holder,
    Holding,
    build_counter_key,
    build_device_key,
    build_preparation_key,
    encode_row,
    parse_counter_key,
    parse_device_key,
    parse_preparation_key,
    read_row,
)
from dray.errors import DecodeError
from dray.server.objects import stored_object
from dray.values.quantity import Quantity


def test_rows_have_keys_apart_from_those_of_objects():
    assert LEDGER_PREFIX == b"/ledger/"
    assert not LEDGER_PREFIX.startswith(stored_object.REGISTRY_PREFIX)


def test_pools_with_slashes_have_keys_of_their_own():
    ids = [
        DeviceId("d", "a/b", "c"),
        DeviceId("d", "a", "b"),
        DeviceId("d", "a%2Fb", "c"),
        DeviceId("d", "a%b", "c"),
    ]
    keys = [build_device_key(device) for device in ids]
    assert len(set(keys)) == len(keys)
    assert [parse_device_key(key) for key in keys] == ids
    sets = CounterSetId("d", "a/b%", "set")
    assert parse_counter_key(build_counter_key(sets)) == sets
    assert parse_preparation_key(build_preparation_key("n1.claim")) == "n1.claim"


def test_amounts_beyond_64_bits_come_back_exactly():
    amount = Quantity.parse("640Gi")
    row = DeviceRow(
        holdings=(
            Holding(holder=Holder(namespace="n", name="c", uid="u"), share="s", amounts={"m": amount}),
        ),
        charged={"set": {"c": Quantity.parse("100m")}},
    )
    key = build_device_key(DeviceId("d", "p", "x"))
    assert read_row(key, encode_row(row)) == row
    assert b'"640Gi"' in encode_row(row)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b'{"format":2}', "it has format 2, written by a newer dray; this one reads format 1"),
        (b'{"format":3,"novel":1}', "it has format 3, written by a newer dray; this one reads format 1"),
        (b"{", "`dray doctor ledger --repair` writes it anew"),
        (b'{"format":1,"holdings":5}', "`dray doctor ledger --repair` writes it anew"),
    ],
)
def test_rows_of_an_unknown_format_are_refused(value: bytes, said: str):
    with pytest.raises(
        DecodeError, match="the ledger's row `/ledger/devices/d/p/x` is not readable"
    ) as broken:
        read_row(build_device_key(DeviceId("d", "p", "x")), value)
    assert said in str(broken.value)
