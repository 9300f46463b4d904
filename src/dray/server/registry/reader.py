"""Get and list: from the cache for the present, from the store for pages of a past.

Theory of operation: without a `resourceVersion` a read is as fresh as a read of the store: the cache first
catches up with everything acknowledged. `0` takes the cache as it is. A list in pages shows one moment: its
first page is read from the cache, and its continue token says at which revision and after which key the rest
is read from the store's past. When that past is gone, the client is told to begin anew (410).
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Final

import msgspec

from dray.api.kinds import Kind
from dray.server.http.errors import (
    bad_request,
    expired,
    invalid_options,
    not_found,
    unavailable,
    version_too_large,
)
from dray.server.http.limits import Limits
from dray.server.http.requests import Request
from dray.server.http.responses import Listed
from dray.server.objects.stored_object import Held, kind_prefix, prefix
from dray.server.registry.selectors import Choice, choice
from dray.server.watch.cache import Cache
from dray.store import Store
from dray.store.errors import Compacted, FutureRevision, StoreError

PATIENCE: Final = 3.0
"""Seconds to wait for a revision a client has seen elsewhere."""

_CHUNK: Final = 500
EXACT, NOT_OLDER = "Exact", "NotOlderThan"


class _Token(msgspec.Struct, frozen=True):
    """Where a list in pages goes on."""

    v: str
    rv: int
    start: str


class Reading:
    """Answers gets and lists."""

    def __init__(self, store: Store, cache: Cache, largest_page: int = Limits().max_page) -> None:
        self._store = store
        self._cache = cache
        self._largest_page = largest_page

    async def get(self, request: Request, kind: Kind) -> Held:
        """One object as it is now."""
        call = request.call
        if call.query.get("resourceVersion") != "0":
            await self._fresh()
        held = self._cache.get(kind, call.namespace, call.name)
        if held is None:
            raise not_found(kind, call.name)
        return held

    async def list(self, request: Request, kind: Kind) -> Listed:
        """The objects that are chosen, all or a page of them."""
        query = request.call.query
        chosen, limit = choice(kind, query), min(_limit(query), self._largest_page)
        version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
        _check_match(version, match)
        token = query.get("continue", "")
        if token:
            if version not in ("", "0"):
                raise bad_request("specifying resource version is not allowed when using continue")
            return await self._page(request, kind, chosen, limit, _read_token(token))
        if match == EXACT:
            moment = _Token("", revision_of(version), "")
            return await self._page(request, kind, chosen, limit, moment)
        if version not in ("", "0"):
            await self.reached(revision_of(version))
        elif version == "":
            await self._fresh()
        return self._present(request, kind, chosen, 0 if version == "0" else limit)

    def _present(self, request: Request, kind: Kind, chosen: Choice, limit: int) -> Listed:
        namespace = request.call.namespace
        name = chosen.only("metadata.name")
        if name is not None and (namespace or not kind.namespaced):
            single = self._cache.get(kind, namespace, name)
            held = [single] if single is not None else []
        else:
            held = self._cache.all(kind, namespace)
        if not chosen.everything:
            held = [each for each in held if chosen.takes(each)]
        revision = self._cache.revision
        if not limit or len(held) <= limit:
            return Listed(held, revision)
        rest = len(held) - limit if chosen.everything else None
        return Listed(held[:limit], revision, _token(kind, held[limit - 1], revision), rest)

    async def _page(self, request: Request, kind: Kind, chosen: Choice, limit: int, moment: _Token) -> Listed:
        place, home = prefix(kind, request.call.namespace), kind_prefix(kind)
        start = home + moment.start.encode() if moment.start else None
        found: list[Held] = []
        while True:
            size = max(limit - len(found), 1) if limit and chosen.everything else _CHUNK
            try:
                page = await self._store.range(place, start_after=start, limit=size, revision=moment.rv)
            except Compacted:
                raise _too_old(moment) from None
            except FutureRevision as future:
                if moment.v:
                    raise _too_new(moment) from None
                raise version_too_large(moment.rv, future.current or self._cache.revision) from None
            except StoreError as broken:
                raise unavailable(f"the store does not answer: {broken}") from None
            for entry in page.entries:
                held = Held.of(entry)
                if chosen.takes(held):
                    found.append(held)
                    if limit and len(found) == limit:
                        more = page.more or entry is not page.entries[-1]
                        following = _token(kind, held, moment.rv) if more else ""
                        return Listed(found, moment.rv, following)
            if not page.more:
                return Listed(found, moment.rv)
            start = page.entries[-1].key

    async def reached(self, revision: int) -> None:
        """Wait a little for a revision that a client has seen; it may come from another server."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._cache.reached(revision)
        except TimeoutError:
            raise version_too_large(revision, self._cache.revision) from None

    async def _fresh(self) -> None:
        try:
            await self._cache.caught_up()
        except StoreError as broken:
            raise unavailable(f"the store does not answer: {broken}") from None


def revision_of(text: str) -> int:
    """A `resourceVersion` as the number it is to us."""
    if text.isascii() and text.isdigit() and len(text) <= 19:
        return int(text)
    raise invalid_options(
        "ListOptions", "resourceVersion", f'Invalid value: "{text}": must be a number', "FieldValueInvalid"
    )


def _check_match(version: str, match: str) -> None:
    if not match:
        return
    if match not in (EXACT, NOT_OLDER):
        what = f'Unsupported value: "{match}": supported values: "{EXACT}", "{NOT_OLDER}"'
        raise invalid_options("ListOptions", "resourceVersionMatch", what, "FieldValueNotSupported")
    if not version:
        what = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise invalid_options("ListOptions", "resourceVersionMatch", what)
    if match == EXACT and version == "0":
        what = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        raise invalid_options("ListOptions", "resourceVersionMatch", what)


def _limit(query: Mapping[str, str]) -> int:
    text = query.get("limit", "") or "0"
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise bad_request(f"limit must be a whole number, not `{text}`")
    return int(text)


def _token(kind: Kind, last: Held, revision: int) -> str:
    start = last.key[len(kind_prefix(kind)) :].decode()
    return (
        base64.urlsafe_b64encode(msgspec.json.encode(_Token("dray/v1", revision, start))).decode().rstrip("=")
    )


def _read_token(text: str) -> _Token:
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
    except (ValueError, msgspec.MsgspecError):
        token = _Token("", 0, "")
    if token.v != "dray/v1" or token.rv < 1:
        raise bad_request("continue key is not valid: take it from the list before, unchanged")
    return token


def _too_new(moment: _Token) -> Exception:
    return expired(
        f"The provided continue parameter names revision {moment.rv}, which this server has not come to: "
        "it is of another history. You must start a new list without the continue parameter."
    )


def _too_old(moment: _Token) -> Exception:
    return expired(
        "The provided continue parameter is too old to display a consistent list result: "
        f"revision {moment.rv} is no longer kept. You must start a new list without the continue parameter."
    )
