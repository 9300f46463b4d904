"""Paths that are no resources: health, metrics, version, discovery, OpenAPI, and what administrators need.

Every row of the table is a path and who answers it; discovery and OpenAPI answer whole trees of paths.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from dray.server.http.errors import new_method_not_allowed, new_path_not_found
from dray.server.http.requests import ApiRequest, ApiResponse, build_json_response
from dray.telemetry.health import HEALTH_PATHS as HEALTH
from dray.telemetry.health import HealthCheck, run_health_checks

TEXT_PLAIN = "text/plain; charset=utf-8"

PathTree = Callable[[ApiRequest], ApiResponse | None]
"""Answers paths of a tree it knows; None for others."""

Endpoint = Callable[[ApiRequest], Awaitable[ApiResponse]]


@dataclass(frozen=True)
class NonResourceEndpoints:
    """Answers calls on paths that are no resources."""

    checks: Mapping[str, HealthCheck]
    path_trees: tuple[PathTree, ...]
    endpoints: Mapping[tuple[str, str], Endpoint] = field(default_factory=dict)
    """By method and path."""

    async def answer(self, request: ApiRequest) -> ApiResponse:
        """Answer a path."""
        path = request.call.path.rstrip("/") or "/"
        page = self.endpoints.get((request.call.verb, path))
        if page is not None:
            return await page(request)
        if request.call.verb not in ("get", "head"):
            raise new_method_not_allowed()
        if "/" + path.split("/")[1] in HEALTH:
            return self._answer_health(request, path)
        for tree in self.path_trees:
            answer = tree(request)
            if answer is not None:
                return answer
        if path == "/":
            return build_json_response(
                {"paths": sorted({"/metrics", *HEALTH, "/version", "/api", "/apis", "/openapi/v3"})}
            )
        raise new_path_not_found()

    def _answer_health(self, request: ApiRequest, path: str) -> ApiResponse:
        health = run_health_checks(path, self.checks, verbose="verbose" in request.call.query)
        if health is None:
            raise new_path_not_found()
        return ApiResponse(200 if health.passed else 500, health.text.encode(), TEXT_PLAIN)
