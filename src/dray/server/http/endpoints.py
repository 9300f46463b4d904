"""Non-resource endpoints: health, metrics, version, discovery, OpenAPI and those for administrators.

A table maps methods and paths to endpoints; discovery and OpenAPI each answer a whole tree of paths.
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
"""Answers the paths of one tree; None for others."""

Endpoint = Callable[[ApiRequest], Awaitable[ApiResponse]]


@dataclass(frozen=True)
class NonResourceEndpoints:
    """Answers calls on non-resource paths."""

    checks: Mapping[str, HealthCheck]
    path_trees: tuple[PathTree, ...]
    endpoints: Mapping[tuple[str, str], Endpoint] = field(default_factory=dict)
    """By method and path."""

    async def answer(self, request: ApiRequest) -> ApiResponse:
        path = request.call.path.rstrip("/") or "/"
        endpoint = self.endpoints.get((request.call.verb, path))
        if endpoint is not None:
            return await endpoint(request)
        if request.call.verb not in ("get", "head"):
            raise new_method_not_allowed()
        if "/" + path.split("/")[1] in HEALTH:
            return self._answer_health(request, path)
        for tree in self.path_trees:
            response = tree(request)
            if response is not None:
                return response
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
