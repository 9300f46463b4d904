"""The door to webhooks: whether a request has any, and a visit to them.

Requests that the server makes to itself (what it collects, and what it begins with) are not asked about: they
follow from something that was, or come before anybody could be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from dray.api.admission.matching import Target
from dray.api.admission.review import Question
from dray.api.admission.webhook_configuration import CREATE, DELETE, UPDATE
from dray.api.kinds import Kind, known_kind
from dray.clock import Clock
from dray.server.admission.webhooks.active_webhooks import Hook, Hooks
from dray.server.admission.webhooks.dispatch import Told, Visit
from dray.server.admission.webhooks.review_objects import Errand
from dray.server.admission.webhooks.webhook_client import Caller
from dray.server.http.request_body import options as body_options
from dray.server.http.requests import Request, User
from dray.server.objects.stored_object import Held
from dray.server.watch.cache import Cache

_NAMESPACE: Final = known_kind("", "Namespace")
_OPTIONS: Mapping[str, str] = {CREATE: "CreateOptions", UPDATE: "UpdateOptions", DELETE: "DeleteOptions"}

About = tuple[str, str, str]
"""Group, version and kind of what a request holds."""


class Admission:
    """Knows which webhooks are in force, and asks them."""

    def __init__(
        self, cache: Cache, caller: Caller, told: Told, clock: Clock, new_uid: Callable[[], str]
    ) -> None:
        self._cache = cache
        self._inforce = Hooks(cache, told.unreadable)
        self._caller, self._told = caller, told
        self._clock, self._new_uid = clock, new_uid

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """All webhooks in force; empty when nobody configured any."""
        return self._inforce.hooks

    def visit(
        self, request: Request, kind: Kind, place: tuple[str, str], old: Held | None, deadline: float = 0.0
    ) -> Visit | None:
        """A visit for a write of an object; None when no webhook is asked about it."""
        operation = DELETE if request.call.verb == "delete" else CREATE if old is None else UPDATE
        about = (kind.group, request.call.version, kind.name)
        return self._visit(request, (kind, about), operation, place, deadline)

    async def errand(
        self, request: Request, kind: Kind, about: About, body: dict[str, Any]
    ) -> dict[str, Any]:
        """The body of an errand, as webhooks make it; raises a `Failure` when one says no."""
        if not self.hooks or not request.audit_id:
            return body
        await self._cache.caught_up()
        metadata = body.get("metadata")
        said = metadata.get("name") if isinstance(metadata, dict) else ""
        place = (request.call.namespace, request.call.name or str(said or ""))
        visit = self._visit(request, (kind, about), CREATE, place, 0.0)
        if visit is None:
            return body
        named = {"apiVersion": f"{about[0]}/{about[1]}" if about[0] else about[1], "kind": about[2]}
        errand = await visit.mutated(Errand({**named, **body}), None)
        assert isinstance(errand, Errand)
        await visit.validated(errand, None)
        return errand.given

    def _visit(
        self,
        request: Request,
        of: tuple[Kind, About],
        operation: str,
        place: tuple[str, str],
        deadline: float,
    ) -> Visit | None:
        call, (kind, about), (namespace, name) = request.call, of, place
        target = Target(
            operation, call.group, call.version, call.plural, call.subresource, kind.namespaced, kind.versions
        )
        named = self._inforce.naming(target)
        home = self._cache.get(_NAMESPACE, "", namespace) if kind.namespaced else None
        if not named or (kind.namespaced and home is None and operation == CREATE):
            return None  # that there is no such namespace is for the rules of the server to say
        labels = None if not kind.namespaced else {} if home is None else home.metadata.labels
        question = Question(
            target,
            call.version,
            about,
            name,
            name if kind is _NAMESPACE else namespace,
            _user(request.user),
            _options(request, operation),
            call.dry_run,
        )
        return Visit(
            self._caller,
            self._told,
            named,
            question,
            labels,
            self._new_uid,
            self._clock.monotonic,
            request.audit_id,
            deadline,
            kind is _NAMESPACE,
        )


def _user(user: User) -> dict[str, Any]:
    told = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {name: list(values) for name, values in user.extra.items()},
    }
    return {name: value for name, value in told.items() if value}


def _options(request: Request, operation: str) -> dict[str, Any]:
    """The options of a request, in the form of its operation: a patch is an update, or creates."""
    call = request.call
    given: dict[str, Any] = dict(body_options(request)) if operation == DELETE and request.body else {}
    for name in ("fieldManager", "fieldValidation", "propagationPolicy"):
        if call.query.get(name):
            given.setdefault(name, call.query[name])
    if call.dry_run:
        given["dryRun"] = ["All"]
    return {**given, "kind": _OPTIONS[operation], "apiVersion": "meta.k8s.io/v1"}
