"""The limit of objects per namespace, and its counters."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dray.server.admission.object_count_limit import ObjectCountLimit
from dray.server.http.errors import ApiStatusError
from tests.unit.server.registries import CONFIGS, world


def config(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "short"}}


def test_an_object_beyond_the_limit_is_refused_and_empty_namespaces_have_no_counter() -> None:
    async def run() -> None:
        refusals: list[str] = []
        async with world(lambda cache: [ObjectCountLimit(cache, 2, refusals.append)]) as there:
            rule = there.rules[0]
            assert isinstance(rule, ObjectCountLimit)
            await there.put(config("a"))
            await there.put(config("b"))
            await there.caught_up()
            with pytest.raises(ApiStatusError, match="namespace short has 2 configmaps, which is the limit"):
                await there.put(config("c"))
            assert refusals == ["max_objects_per_namespace"]
            await there.delete(CONFIGS, "short", "a")
            await there.delete(CONFIGS, "short", "b")
            await there.caught_up()
            assert not rule._counts

    asyncio.run(run())
