"""Paths that are no resources: health, metrics, version, discovery, OpenAPI, and what administrators need.

Every row of the table is a path and who answers it; discovery and OpenAPI answer whole trees of paths.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from dray.server.http.errors import method_not_allowed, no_such_path
from dray.server.http.requests import Answer, Request, json_answer
from dray.telemetry.health import PATHS as HEALTH
from dray.telemetry.health import Check, health_at

TEXT = "text/plain; charset=utf-8"

Tree = Callable[[Request], Answer | None]
"""Answers paths of a tree it knows; None for others."""

Page = Callable[[Request], Awaitable[Answer]]


@dataclass(frozen=True)
class Paths:
    """Answers calls on paths that are no resources."""

    checks: Mapping[str, Check]
    trees: tuple[Tree, ...]
    pages: Mapping[tuple[str, str], Page] = field(default_factory=dict)
    """By method and path."""

    async def answer(self, request: Request) -> Answer:
        """Answer a path."""
        path = request.call.path.rstrip("/") or "/"
        page = self.pages.get((request.call.verb, path))
        if page is not None:
            return await page(request)
        if request.call.verb not in ("get", "head"):
            raise method_not_allowed()
        if "/" + path.split("/")[1] in HEALTH:
            return self._health(request, path)
        for tree in self.trees:
            answer = tree(request)
            if answer is not None:
                return answer
        if path == "/":
            return json_answer(
                {"paths": sorted({"/metrics", *HEALTH, "/version", "/api", "/apis", "/openapi/v3"})}
            )
        raise no_such_path()

    def _health(self, request: Request, path: str) -> Answer:
        health = health_at(path, self.checks, verbose="verbose" in request.call.query)
        if health is None:
            raise no_such_path()
        return Answer(200 if health.good else 500, health.text.encode(), TEXT)
