"""Transactions that are committed at the same time, over every transport."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dray.client.errors import AlreadyExistsError
from dray.client.object_refs import get_key, get_kind
from dray.client.transactions.object_transaction import ObjectTransaction
from dray.client.transactions.support import TransactionsUnsupported, find_refused_write
from tests.contract.documents import claim, config
from tests.contract.servers import reaching, way

__all__ = ["way"]

CONFIG = get_kind("ConfigMap")
COUNT = 12


async def test_each_caller_gets_its_own_objects_or_its_own_refusal(way: str, tmp_path: Path) -> None:
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        await client.create(config("taken"))
        transactions = [
            ObjectTransaction().create(config(f"c{number}")).create(claim(f"c{number}"))
            for number in range(COUNT)
        ]
        refused = ObjectTransaction().create(config("lost")).create(config("taken"))
        first, *results, error = await asyncio.gather(
            *map(
                client.transactions.commit,
                (ObjectTransaction().create(config("alone")), *transactions, refused),
            ),
            return_exceptions=True,
        )
        assert isinstance(first, tuple)
        assert first[0]["metadata"]["name"] == "alone"
        for number, stored in enumerate(results):
            assert not isinstance(stored, BaseException | TransactionsUnsupported)
            assert [get_key(each).name for each in stored] == [f"c{number}"] * 2
        assert isinstance(error, AlreadyExistsError)
        assert (find_refused_write(error), error.details["name"]) == (1, "taken")
        names = {each["metadata"]["name"] for each in (await client.list(CONFIG, "default")).items}
        assert names >= {"alone", "taken", *(f"c{number}" for number in range(COUNT))}
        assert "lost" not in names
