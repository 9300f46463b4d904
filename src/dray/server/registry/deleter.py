"""Deletes: at once, after a time of grace, or when the last finalizer lets go.

Theory of operation: what nothing holds back is gone in one transaction. What has finalizers is marked as
being deleted and goes with the last of them. A pod on a node gets its time of grace: the node ends it and
deletes it again, without grace. What is to happen to dependents is written down as a finalizer, for the
collector to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from msgspec.structs import replace

from dray.api.json_text import write_json
from dray.api.kinds import Kind
from dray.clock import timestamp
from dray.server.http.errors import Failure, bad_request, invalid_options, not_found
from dray.server.http.request_body import options
from dray.server.http.requests import Request
from dray.server.objects.pending_object import Draft
from dray.server.objects.stored_object import Held
from dray.server.registry import object_metadata
from dray.server.registry.object_registry import Keep, Remove, Same, Wanted, Written
from dray.server.registry.selectors import Choice
from dray.server.registry.writer import Writing

ORPHAN, BACKGROUND, FOREGROUND = "Orphan", "Background", "Foreground"
FINALIZERS: Final[Mapping[str, str]] = {ORPHAN: "orphan", FOREGROUND: "foregroundDeletion"}
"""The finalizer that remembers what becomes of dependents."""

_LINGERING: Final = (("", "Pod"), ("", "Namespace"))
"""Kinds that may stay a while after their deletion for other reasons than finalizers."""
_ENDED: Final = ("Succeeded", "Failed")
_LONGEST_GRACE: Final = 2**31
"""Seconds, some 68 years: who asks for more means for ever, and calendars end."""


class Removing:
    """Carries out deletes."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    @property
    def revision(self) -> int:
        """How far the server has seen the store come."""
        return self._writing.registry.cache.revision

    async def delete(self, request: Request, kind: Kind) -> Written:
        """Delete one object, or mark it as being deleted."""
        wish = _wish(request)
        call = request.call
        return await self.remove(pretended(request, wish), kind, call.namespace, call.name, wish)

    async def remove(
        self, request: Request, kind: Kind, namespace: str, name: str, wish: Mapping[str, Any]
    ) -> Written:
        """The same, for whoever deletes on behalf of others."""

        def decide(old: Held | None) -> Wanted:
            if old is None:
                raise not_found(kind, name)
            object_metadata.check_delete_preconditions(kind, old, wish.get("preconditions") or {})
            return self._decided(old, wish)

        return await self._writing.registry.write(request, kind, namespace, name, decide)

    async def delete_collection(self, request: Request, kind: Kind, choice: Choice) -> list[Held]:
        """Delete everything that is chosen; what others delete meanwhile is gone too."""
        wish = _wish(request)
        request = pretended(request, wish)
        cache = self._writing.registry.cache
        await cache.caught_up()
        chosen = [held for held in cache.all(kind, request.call.namespace) if choice.takes(held)]
        for held in chosen:
            try:
                await self.remove(_one_of(request, held), kind, held.namespace, held.name, wish)
            except Failure as failure:
                if failure.code != 404:
                    raise
        return chosen

    def _decided(self, old: Held, wish: Mapping[str, Any]) -> Wanted:
        known = old.metadata
        finalizers = _finalizers(known.finalizers, wish)
        ends_at_once = (old.kind.group, old.kind.name) not in _LINGERING
        if ends_at_once and not finalizers:
            return Remove()
        document = old.document
        metadata = document["metadata"]
        grace = 0 if ends_at_once else _grace(document, wish)
        held_back = bool(finalizers) or _spec_finalizers(document)
        if not held_back and not grace:
            return Remove()
        marked = metadata.get("deletionTimestamp") is not None
        shorter = marked and grace < int(metadata.get("deletionGracePeriodSeconds") or 0)
        if marked and not shorter and finalizers == (metadata.get("finalizers") or []):
            return Same()
        when = self._writing.world.clock.now() + timedelta(seconds=grace)
        changed = {**metadata, "finalizers": finalizers}
        if not marked or shorter:
            changed |= {"deletionTimestamp": timestamp(when), "deletionGracePeriodSeconds": grace}
            if not marked and metadata.get("generation"):
                changed["generation"] = int(metadata["generation"]) + 1
        # A zero is told, unlike other empty values: it says that nobody waits any longer.
        return Keep(_marked(Draft.of_held(old), changed))


def _marked(draft: Draft, metadata: Mapping[str, Any]) -> Draft:
    marked = draft.with_metadata(metadata)
    if draft.kind.name != "Namespace" or draft.kind.group:
        return marked
    status = {**(draft.document.get("status") or {}), "phase": "Terminating"}
    return marked.with_field("status", status)


def pretended(request: Request, wish: Mapping[str, Any]) -> Request:
    """The request as a dry run, when the wish in its body says so."""
    wanted = wish.get("dryRun")
    if not wanted or request.call.dry_run:
        return request
    if wanted != ["All"]:
        raise invalid_options(
            "DeleteOptions",
            "dryRun",
            f'Unsupported value: {write_json(wanted).decode()}: supported values: "All"',
            "FieldValueNotSupported",
        )
    call = replace(request.call, query={**request.call.query, "dryRun": "All"})
    return replace(request, call=call)


def _wish(request: Request) -> dict[str, Any]:
    """What a delete asks for: in its body, or in the query."""
    wish = options(request)
    query = request.call.query
    for name in ("propagationPolicy", "orphanDependents", "gracePeriodSeconds"):
        if name in query:
            wish.setdefault(name, query[name])
    return sensible(wish)


def sensible(wish: Mapping[str, Any]) -> dict[str, Any]:
    """A wish that makes sense; raises a `Failure` that names what does not."""
    seconds, policy = wish.get("gracePeriodSeconds"), wish.get("propagationPolicy")
    found = {**wish}
    if seconds is not None:
        try:
            found["gracePeriodSeconds"] = max(int(seconds), 0)
        except (TypeError, ValueError, OverflowError):
            raise bad_request(f"gracePeriodSeconds must be a whole number, not `{seconds}`") from None
    if policy not in (None, "", ORPHAN, BACKGROUND, FOREGROUND):
        raise bad_request(f"propagationPolicy must be {ORPHAN}, {BACKGROUND} or {FOREGROUND}, not `{policy}`")
    if wish.get("orphanDependents") not in (None, True, False, "", "true", "false"):
        raise bad_request(f"orphanDependents must be true or false, not `{wish['orphanDependents']}`")
    if not isinstance(wish.get("preconditions") or {}, dict):
        raise bad_request("preconditions must be an object with `uid` and `resourceVersion`")
    return found


def _grace(document: Mapping[str, Any], wish: Mapping[str, Any]) -> int:
    """How many seconds an object has left to end by itself; only pods on a node have any."""
    if document["kind"] != "Pod" or document["apiVersion"] != "v1":
        return 0
    spec, status = document.get("spec") or {}, document.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in _ENDED:
        return 0
    asked = wish.get("gracePeriodSeconds")
    seconds = spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return min(max(int(seconds or 0), 0), _LONGEST_GRACE)


def _finalizers(present: Sequence[str], wish: Mapping[str, Any]) -> list[str]:
    policy = wish.get("propagationPolicy")
    if policy is None and wish.get("orphanDependents") in (True, "true"):
        policy = ORPHAN
    if not policy:
        return list(present)
    kept = [name for name in present if name not in FINALIZERS.values()]
    return [*kept, FINALIZERS[policy]] if policy in FINALIZERS else kept


def _spec_finalizers(document: Mapping[str, Any]) -> bool:
    return document["kind"] == "Namespace" and bool((document.get("spec") or {}).get("finalizers"))


def _one_of(request: Request, held: Held) -> Request:
    """The request for one object of a collection, so that rules and records name it."""
    single = replace(request.call, verb="delete", namespace=held.namespace, name=held.name, subresource="")
    return replace(request, call=single, body=b"")
