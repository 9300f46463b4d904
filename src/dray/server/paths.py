"""Paths that are no resources: health, metrics, version, discovery, OpenAPI, and what administrators need.

Every row of the table is a path and who answers it; discovery and OpenAPI answer whole trees of paths.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from dray.server.call import Answer, Request, json_answer
from dray.server.failures import method_not_allowed, no_such_path

TEXT = "text/plain; charset=utf-8"
HEALTH = ("/healthz", "/livez", "/readyz")

Check = Callable[[], str | None]
"""What is wrong, in a line; None when nothing is."""

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
        top = "/" + path.split("/")[1]
        if top in HEALTH:
            return self._health(request, path, top)
        for tree in self.trees:
            answer = tree(request)
            if answer is not None:
                return answer
        if path == "/":
            return json_answer(
                {"paths": sorted({"/metrics", *HEALTH, "/version", "/api", "/apis", "/openapi/v3"})}
            )
        raise no_such_path()

    def _health(self, request: Request, path: str, top: str) -> Answer:
        asked = path[len(top) :].strip("/")
        if asked and asked not in self.checks:
            raise no_such_path()
        # A server that is alive but not ready must not be restarted for it.
        names = [asked] if asked else ([] if top == "/livez" else list(self.checks))
        troubles = {name: self.checks[name]() for name in names}
        lines = [f"[-]{name} failed: {why}" if why else f"[+]{name} ok" for name, why in troubles.items()]
        bad = any(troubles.values())
        if not bad and "verbose" not in request.call.query:
            return Answer(200, b"ok", TEXT)
        verdict = "check failed" if bad else "check passed"
        text = "\n".join([*lines, f"{top[1:]} {verdict}", ""])
        return Answer(500 if bad else 200, text.encode(), TEXT)
