"""Rows of the ledger: keys and bytes."""

from __future__ import annotations

import pytest

from dray.claims.ledger.rows import (
    LEDGER,
    CounterSetId,
    DeviceId,
    DeviceRow,
    Holder,
    Holding,
    counter_key,
    counter_set_at,
    device_at,
    device_key,
    preparation_at,
    preparation_key,
    read_row,
    row_bytes,
)
from dray.errors import DecodeError
from dray.server.objects import stored_object
from dray.values.quantity import Quantity


def test_the_server_and_the_ledger_agree_on_the_place():
    assert stored_object.LEDGER == LEDGER


def test_pools_with_slashes_have_keys_of_their_own():
    ids = [
        DeviceId("d", "a/b", "c"),
        DeviceId("d", "a", "b"),
        DeviceId("d", "a%2Fb", "c"),
        DeviceId("d", "a%b", "c"),
    ]
    keys = [device_key(device) for device in ids]
    assert len(set(keys)) == len(keys)
    assert [device_at(key) for key in keys] == ids
    sets = CounterSetId("d", "a/b%", "set")
    assert counter_set_at(counter_key(sets)) == sets
    assert preparation_at(preparation_key("n1.claim")) == "n1.claim"


def test_amounts_beyond_64_bits_come_back_exactly():
    amount = Quantity.parse("640Gi")
    row = DeviceRow(
        holdings=(
            Holding(holder=Holder(namespace="n", name="c", uid="u"), share="s", amounts={"m": amount}),
        ),
        charged={"set": {"c": Quantity.parse("100m")}},
    )
    key = device_key(DeviceId("d", "p", "x"))
    assert read_row(key, row_bytes(row)) == row
    assert b'"640Gi"' in row_bytes(row)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b'{"format":2}', "it has format 2, written by a newer dray; this one reads format 1"),
        (b'{"format":3,"novel":1}', "it has format 3, written by a newer dray; this one reads format 1"),
        (b"{", "`dray doctor ledger --repair` writes it anew"),
        (b'{"format":1,"holdings":5}', "`dray doctor ledger --repair` writes it anew"),
    ],
)
def test_rows_that_nobody_understands_are_refused(value: bytes, said: str):
    with pytest.raises(
        DecodeError, match="the ledger's row `/ledger/devices/d/p/x` is not readable"
    ) as broken:
        read_row(device_key(DeviceId("d", "p", "x")), value)
    assert said in str(broken.value)
