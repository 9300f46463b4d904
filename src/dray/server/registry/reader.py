"""Get and list: from the cache for the current state, from the store for further pages of a list.

Theory of operation: without a `resourceVersion` a read is as fresh as a read of the store: the cache first
catches up with every acknowledged write. `0` reads the cache as it is. All pages of a list show the same
revision: the first page is read from the cache, and its continue token has the revision and the key after
which the next page is read from the store's history. When that revision is compacted, the answer is 410.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dray.api.kinds import Kind
from dray.server.http.errors import (
    new_bad_request,
    new_expired,
    new_invalid_options,
    new_not_found,
    new_service_unavailable,
    new_version_too_large,
)
from dray.server.http.limits import ServerLimits
from dray.server.http.requests import ApiRequest
from dray.server.http.responses import ListResult
from dray.server.objects.stored_object import StoredObject, build_kind_prefix, build_prefix
from dray.server.registry.selectors import ListSelector, parse_selectors
from dray.server.watch.cache import WatchCache
from dray.store import Store
from dray.store.errors import CompactedError, FutureRevisionError, StoreError

REVISION_WAIT_SECONDS: Final = 3.0
"""Seconds to wait for a revision a client has seen elsewhere."""

_CHUNK_SIZE: Final = 500
EXACT, NOT_OLDER_THAN = "Exact", "NotOlderThan"


class _ContinueToken(msgspec.Struct, frozen=True):
    """Where the next page of a list starts."""

    v: str
    rv: int
    start: str


class StoredObjectReader:
    """Answers gets and lists."""

    def __init__(self, store: Store, cache: WatchCache, max_page: int = ServerLimits().max_page) -> None:
        self._store = store
        self._cache = cache
        self._max_page = max_page

    async def get(self, request: ApiRequest, kind: Kind) -> StoredObject:
        """The current state of one object."""
        call = request.call
        if call.query.get("resourceVersion") != "0":
            await self._wait_until_fresh()
        stored = self._cache.get(kind, call.namespace, call.name)
        if stored is None:
            raise new_not_found(kind, call.name)
        return stored

    async def list(self, request: ApiRequest, kind: Kind) -> ListResult:
        """The selected objects, or one page of them."""
        query = request.call.query
        selector, limit = parse_selectors(kind, query), min(_read_limit(query), self._max_page)
        version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
        _check_match(version, match)
        if "sendInitialEvents" in query:
            what = "Forbidden: sendInitialEvents is forbidden for list"
            raise new_invalid_options("ListOptions", "sendInitialEvents", what)
        token = query.get("continue", "")
        if token:
            if version not in ("", "0"):
                raise new_bad_request("specifying resource version is not allowed when using continue")
            return await self._list_from_store(request, kind, selector, limit, _decode_token(token))
        if match == EXACT:
            start = _ContinueToken("", parse_revision(version), "")
            return await self._list_from_store(request, kind, selector, limit, start)
        if version not in ("", "0"):
            await self.wait_for_revision(parse_revision(version))
        elif version == "":
            await self._wait_until_fresh()
        return self._list_from_cache(request, kind, selector, 0 if version == "0" else limit)

    def _list_from_cache(
        self, request: ApiRequest, kind: Kind, selector: ListSelector, limit: int
    ) -> ListResult:
        objects = self.select_cached(kind, request.call.namespace, selector)
        revision = self._cache.revision
        if not limit or len(objects) <= limit:
            return ListResult(objects, revision)
        remaining = len(objects) - limit if selector.is_everything else None
        token = _encode_token(kind, objects[limit - 1], revision)
        return ListResult(objects[:limit], revision, token, remaining)

    def select_cached(self, kind: Kind, namespace: str, selector: ListSelector) -> Sequence[StoredObject]:
        """The selected objects of the cache, found by name or by a field with an index where possible."""
        if selector.is_everything:
            return self._cache.list_objects(kind, namespace)
        if kind.namespaced:
            namespace = namespace or selector.get_exact_value("metadata.namespace") or ""
        name = selector.get_exact_value("metadata.name")
        if name is not None and (namespace or not kind.namespaced):
            single = self._cache.get(kind, namespace, name)
            objects = [single] if single is not None else []
        else:
            objects = self._cache.list_objects(kind, namespace, selector.required_field)
        return [stored for stored in objects if selector.matches(stored)]

    async def _list_from_store(
        self, request: ApiRequest, kind: Kind, selector: ListSelector, limit: int, token: _ContinueToken
    ) -> ListResult:
        prefix = build_prefix(kind, request.call.namespace)
        start = build_kind_prefix(kind) + token.start.encode() if token.start else None
        found: list[StoredObject] = []
        while True:
            size = max(limit - len(found), 1) if limit and selector.is_everything else _CHUNK_SIZE
            try:
                page = await self._store.range(prefix, start_after=start, limit=size, revision=token.rv)
            except CompactedError:
                raise _new_expired_token(token) from None
            except FutureRevisionError as error:
                if token.v:
                    raise _new_unknown_revision(token) from None
                raise new_version_too_large(token.rv, error.current or self._cache.revision) from None
            except StoreError as error:
                raise new_service_unavailable(f"the store does not answer: {error}") from None
            for entry in page.entries:
                stored = StoredObject.from_entry(entry)
                if selector.matches(stored):
                    found.append(stored)
                    if limit and len(found) == limit:
                        more = page.more or entry is not page.entries[-1]
                        following = _encode_token(kind, stored, token.rv) if more else ""
                        return ListResult(found, token.rv, following)
            if not page.more:
                return ListResult(found, token.rv)
            start = page.entries[-1].key

    async def wait_for_revision(self, revision: int) -> None:
        """Wait briefly for a revision that a client has seen, maybe on another server."""
        try:
            async with asyncio.timeout(REVISION_WAIT_SECONDS):
                await self._cache.wait_for_revision(revision)
        except TimeoutError:
            raise new_version_too_large(revision, self._cache.revision) from None

    async def _wait_until_fresh(self) -> None:
        try:
            await self._cache.wait_until_fresh()
        except StoreError as error:
            raise new_service_unavailable(f"the store does not answer: {error}") from None


def parse_revision(text: str) -> int:
    """Parse a `resourceVersion`, which is a revision of the store."""
    if text.isascii() and text.isdigit() and len(text) <= 19:
        return int(text)
    raise new_bad_request(f'resourceVersion: Invalid value: "{text}": must be a number')


def _check_match(version: str, match: str) -> None:
    if not match:
        return
    if match not in (EXACT, NOT_OLDER_THAN):
        what = f'Unsupported value: "{match}": supported values: "{EXACT}", "{NOT_OLDER_THAN}"'
        raise new_invalid_options("ListOptions", "resourceVersionMatch", what, "FieldValueNotSupported")
    if not version:
        what = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise new_invalid_options("ListOptions", "resourceVersionMatch", what)
    if match == EXACT and version == "0":
        what = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        raise new_invalid_options("ListOptions", "resourceVersionMatch", what)


def _read_limit(query: Mapping[str, str]) -> int:
    text = query.get("limit", "") or "0"
    if text[:1] == "-" and text[1:].isascii() and text[1:].isdigit():
        return 0  # no limit
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise new_bad_request(f"limit must be a whole number, not `{text}`")
    return int(text)


def _encode_token(kind: Kind, last: StoredObject, revision: int) -> str:
    start = last.key[len(build_kind_prefix(kind)) :].decode()
    return (
        base64.urlsafe_b64encode(msgspec.json.encode(_ContinueToken("dray/v1", revision, start)))
        .decode()
        .rstrip("=")
    )


def _decode_token(text: str) -> _ContinueToken:
    try:
        token = msgspec.json.decode(
            base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_ContinueToken
        )
    except (ValueError, msgspec.MsgspecError):
        token = _ContinueToken("", 0, "")
    if token.v != "dray/v1" or token.rv < 1:
        raise new_bad_request("continue key is not valid: take it from the list before, unchanged")
    return token


def _new_unknown_revision(token: _ContinueToken) -> Exception:
    return new_expired(
        f"The provided continue parameter names revision {token.rv}, which this server has not reached: "
        "it is of another history. You must start a new list without the continue parameter."
    )


def _new_expired_token(token: _ContinueToken) -> Exception:
    return new_expired(
        "The provided continue parameter is too old to display a consistent list result: "
        f"revision {token.rv} is compacted. You must start a new list without the continue parameter."
    )
