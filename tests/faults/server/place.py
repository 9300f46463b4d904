"""A server in this process, with its store, its cache and everything it writes at hand."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dray.api.strategies.gated_fields import FeatureGateFilter
from dray.clock import SystemClock
from dray.gates import GateSet
from dray.server.app import ApiServer, ApiServerOptions
from dray.server.http.limits import ServerLimits
from dray.store import Store
from dray.store.memory import MemoryStore
from dray.telemetry.logs import LogLevel, StructuredLogger
from tests.contract.api import Api, keys


@dataclass
class Place:
    """The server and its surroundings."""

    server: ApiServer
    api: Api
    store: Store
    audit: Path
    lines: list[str] = field(default_factory=list)


@asynccontextmanager
async def placed(
    *, store: Store | None = None, limits: ServerLimits | None = None, tokens: Path | None = None
) -> AsyncIterator[Place]:
    """A server while the block lasts, and its administrator."""
    kept = store or MemoryStore()
    lines: list[str] = []

    def took(line: bytes) -> bool:
        lines.append(line.decode())
        return True

    with tempfile.TemporaryDirectory() as folder:
        audit = Path(folder) / "audit.log"
        choices = ApiServerOptions(
            FeatureGateFilter(GateSet.from_defaults()),
            keys(),
            audit,
            StructuredLogger(took, SystemClock(), level=LogLevel.DEBUG),
            tokens=tokens,
            limits=limits or ServerLimits(),
        )
        server = ApiServer(kept, choices)
        async with server.run() as app:
            yield Place(server, Api(app, kept, groups=("system:masters",)), kept, audit, lines)
    if store is None:
        await kept.close()
