"""A cluster as its server tells it: everything that decides where pods go, read once, as a bundle."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec

from dray.api.classic import ClassicClaim
from dray.api.core import Node, Pod
from dray.api.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dray.client.client import Client
from dray.client.errors import Forbidden, NotFound, NotServed
from dray.simulation.bundle import Bundle

T = TypeVar("T", bound=msgspec.Struct)


async def bundle_of(client: Client) -> Bundle:
    """What is on the server now. Kinds are read one beside the other, so it may change in between."""
    nodes, slices, classes, claims, templates, pods, classic, (rules, remarks) = await asyncio.gather(
        _all(client, Node),
        _all(client, ResourceSlice),
        _all(client, DeviceClass),
        _all(client, ResourceClaim),
        _all(client, ResourceClaimTemplate),
        _all(client, Pod),
        _all(client, ClassicClaim),
        _rules(client),
    )
    return Bundle(
        nodes=tuple(sorted(nodes, key=lambda node: node.metadata.name)),
        slices=slices,
        classes=classes,
        claims=claims,
        templates=templates,
        pods=pods,
        classic_claims=classic,
        rules=rules,
        remarks=remarks,
    )


async def _rules(client: Client) -> tuple[tuple[DeviceTaintRule, ...], tuple[str, ...]]:
    """The taint rules, and what to say when they may not be read: most people may not."""
    try:
        return await _all(client, DeviceTaintRule), ()
    except Forbidden:
        return (), ("taint rules may not be read: devices look as if no rule tainted them",)


async def _all(client: Client, kind: type[T]) -> tuple[Any, ...]:
    """Everything of a kind; nothing of one that the server does not have."""
    try:
        return tuple((await client.list(kind)).items)
    except NotServed:
        return ()
    except NotFound as missing:
        if missing.of_resource:
            return ()
        raise
