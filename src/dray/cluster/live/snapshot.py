"""Reads a cluster from its server: everything that decides where pods go, once, as a bundle."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Node, Pod
from dray.api.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dray.client.client import Client
from dray.client.errors import ForbiddenError, KindNotServedError, NotFoundError
from dray.simulation.bundle import Bundle

T = TypeVar("T", bound=msgspec.Struct)


async def read_bundle(client: Client) -> Bundle:
    """Read the bundle. Kinds are read concurrently, so the cluster may change in between."""
    nodes, slices, classes, claims, templates, pods, classic, (rules, remarks) = await asyncio.gather(
        _list_objects(client, Node),
        _list_objects(client, ResourceSlice),
        _list_objects(client, DeviceClass),
        _list_objects(client, ResourceClaim),
        _list_objects(client, ResourceClaimTemplate),
        _list_objects(client, Pod),
        _list_objects(client, ClassicResourceClaim),
        _read_taint_rules(client),
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


async def _read_taint_rules(client: Client) -> tuple[tuple[DeviceTaintRule, ...], tuple[str, ...]]:
    """Read the taint rules, with a remark when they may not be read: most users may not."""
    try:
        return await _list_objects(client, DeviceTaintRule), ()
    except ForbiddenError:
        return (), ("taint rules may not be read: devices look as if no rule tainted them",)


async def _list_objects(client: Client, kind: type[T]) -> tuple[Any, ...]:
    """List all objects of a kind; none of one that the server does not serve."""
    try:
        return tuple((await client.list(kind)).items)
    except KindNotServedError:
        return ()
    except NotFoundError as missing:
        if missing.is_unknown_resource:
            return ()
        raise
