"""The request dispatcher: a table of endpoints by verb and subresource."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from dray.api.kinds import Kind
from dray.api.validation import find_deprecation_warning
from dray.server.discovery.resources import UNSUPPORTED_VERBS
from dray.server.http.errors import (
    ApiStatusError,
    new_bad_request,
    new_invalid_options,
    new_method_not_allowed,
    new_path_not_found,
)
from dray.server.http.requests import (
    MAX_FIELD_MANAGER_BYTES,
    ApiCall,
    ApiRequest,
    ApiResponse,
    build_json_response,
)
from dray.server.http.responses import ListResult, ResponseWriter, build_warning_headers
from dray.server.http.routing import BINDINGS
from dray.server.objects.stored_object import StoredObject
from dray.server.registry.deleter import ObjectDeleter
from dray.server.registry.object_registry import WriteResult
from dray.server.registry.patcher import ObjectPatcher
from dray.server.registry.pod_subresources import PodSubresources
from dray.server.registry.reader import StoredObjectReader
from dray.server.registry.selectors import parse_selectors
from dray.server.registry.strategies import get_strategy
from dray.server.registry.watch_server import WatchServer
from dray.server.registry.writer import ObjectWriter

_DURATION = re.compile(r"[+-]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))+)")

METHOD_NOT_ALLOWED: Final = 405

ResourceEndpoint = Callable[[ApiRequest], Awaitable[ApiResponse]]
"""Answers a request by itself, without an object of the registry."""


@dataclass(frozen=True)
class WriteVerbs:
    """The verbs that write one object, over one registry."""

    writer: ObjectWriter
    patcher: ObjectPatcher
    deleter: ObjectDeleter
    pod_subresources: PodSubresources
    responses: ResponseWriter

    def supports(self, call: ApiCall) -> bool:
        """Whether a call writes one object."""
        return _get_write_key(call) in _WRITES

    async def write(self, request: ApiRequest, kind: Kind) -> WriteResult:
        """Carry out a request."""
        return await _WRITES[_get_write_key(request.call)][0](self, request, kind)

    def build_response(self, request: ApiRequest, kind: Kind, result: WriteResult) -> ApiResponse:
        """The response to a request that was carried out."""
        return _WRITES[_get_write_key(request.call)][1](self.responses, request, kind, result)

    async def answer(self, request: ApiRequest, kind: Kind) -> ApiResponse:
        """Carry out a request and answer it."""
        return self.build_response(request, kind, await self.write(request, kind))

    async def _create(self, request: ApiRequest, kind: Kind) -> WriteResult:
        return await self.writer.create(request, kind, request.call.version)

    async def _update(self, request: ApiRequest, kind: Kind) -> WriteResult:
        return await self.writer.update(request, kind, request.call.version)

    async def _patch(self, request: ApiRequest, kind: Kind) -> WriteResult:
        return await self.patcher.patch(request, kind, request.call.version)

    async def _delete(self, request: ApiRequest, kind: Kind) -> WriteResult:
        return await self.deleter.delete(request, kind)

    async def _bind(self, request: ApiRequest, kind: Kind) -> WriteResult:
        return await self.pod_subresources.bind(request, kind)


@dataclass(frozen=True)
class RequestDispatcher:
    """Answers calls on resources."""

    reader: StoredObjectReader
    verbs: WriteVerbs
    watch_server: WatchServer
    responses: ResponseWriter
    review_endpoint: ResourceEndpoint
    """Answers reviews and token requests, which are not stored."""
    pod_logs: ResourceEndpoint
    transaction_endpoint: ResourceEndpoint

    async def answer(self, request: ApiRequest) -> ApiResponse:
        kind = request.call.kind
        warning = None if kind is None else find_deprecation_warning(kind, request.call.version)
        if warning is None:
            return await self._answer(request)
        headers = build_warning_headers([warning])
        try:
            response = await self._answer(request)
        except ApiStatusError as error:
            if error.code != METHOD_NOT_ALLOWED:
                error.headers = (*headers, *error.headers)
            raise
        return replace(response, headers=(*headers, *response.headers))

    async def _answer(self, request: ApiRequest) -> ApiResponse:
        call, kind = request.call, request.call.kind
        check_options(call)
        if kind is None or call.subresource == "token":
            if call.verb != "create":
                raise new_method_not_allowed()
            if request.call.is_transaction:
                return await self.transaction_endpoint(request)
            return await self.review_endpoint(request)
        if self.verbs.supports(call):
            return await self.verbs.answer(request, kind)
        endpoint = _VERB_ENDPOINTS.get((call.verb, call.subresource))
        if endpoint is None or call.verb in UNSUPPORTED_VERBS.get((kind.group, kind.plural), ()):
            raise (
                new_method_not_allowed()
                if call.subresource in (*kind.subresources, "")
                else new_path_not_found()
            )
        return await endpoint(self, request, kind)

    async def _get(self, request: ApiRequest, kind: Kind) -> ApiResponse:
        return self.responses.write_object(request, kind, await self.reader.get(request, kind))

    async def _list(self, request: ApiRequest, kind: Kind) -> ApiResponse:
        return self.responses.write_list(request, kind, await self.reader.list(request, kind))

    async def _watch(self, request: ApiRequest, kind: Kind) -> ApiResponse:
        return await self.watch_server.open(request, kind)

    async def _delete_collection(self, request: ApiRequest, kind: Kind) -> ApiResponse:
        selector = parse_selectors(kind, request.call.query)
        deleted = await self.verbs.deleter.delete_collection(request, kind, selector)
        return self.responses.write_list(request, kind, ListResult(deleted, self.verbs.deleter.revision))

    async def _get_log(self, request: ApiRequest, kind: Kind) -> ApiResponse:
        return await self.pod_logs(request)

    async def _evict(self, request: ApiRequest, kind: Kind) -> ApiResponse:
        await self.verbs.pod_subresources.evict(request, kind)
        return build_json_response(_build_success_status(201), 201)


def check_options(call: ApiCall) -> None:
    """Refuse query parameters that every verb reads and that are not valid."""
    _check_dry_run(call)
    _check_field_manager(call)
    _check_timeout(call)


def _check_dry_run(call: ApiCall) -> None:
    """Refuse unknown values of `dryRun`: a misspelled dry run must not write."""
    dry_run = call.query.get("dryRun")
    if dry_run not in (None, "All"):
        what = f'Unsupported value: "{dry_run}": supported values: "All"'
        raise new_invalid_options(
            f"{call.verb.capitalize()}Options", "dryRun", what, "FieldValueNotSupported"
        )


def _check_field_manager(call: ApiCall) -> None:
    """Refuse unprintable and long names of managers, which are stored with every object they write."""
    manager = call.query.get("fieldManager", "")
    if not manager:
        return
    options = f"{call.verb.capitalize()}Options"
    if len(manager.encode()) > MAX_FIELD_MANAGER_BYTES:
        what = f"Too long: may not be more than {MAX_FIELD_MANAGER_BYTES} bytes"
        raise new_invalid_options(options, "fieldManager", what, "FieldValueTooLong")
    if not manager.isprintable():
        what = "Invalid value: must consist of printable characters"
        raise new_invalid_options(options, "fieldManager", what, "FieldValueInvalid")


def _check_timeout(call: ApiCall) -> None:
    """Refuse a `timeout` that is no duration; how long a request may take is the server's decision."""
    timeout = call.query.get("timeout", "")
    if timeout and not _DURATION.fullmatch(timeout):
        raise new_bad_request(f"timeout must be a duration such as `30s` or `1m30s`, not `{timeout}`")


def _build_success_status(code: int) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}


def _build_deleted_status(kind: Kind, stored: StoredObject) -> dict[str, Any]:
    details = {"name": stored.name, "group": kind.group, "kind": kind.plural, "uid": stored.metadata.uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {name: value for name, value in details.items() if value},
    }


def _build_write_response(
    responses: ResponseWriter, request: ApiRequest, kind: Kind, result: WriteResult
) -> ApiResponse:
    code = 201 if result.created else 200
    return responses.write_object(request, kind, result.stored, code=code, warnings=result.warnings)


def _build_delete_response(
    responses: ResponseWriter, request: ApiRequest, kind: Kind, result: WriteResult
) -> ApiResponse:
    if not result.deleted or get_strategy(kind).returns_deleted_object:
        return responses.write_object(request, kind, result.stored, warnings=result.warnings)
    return build_json_response(
        _build_deleted_status(kind, result.stored), headers=build_warning_headers(result.warnings)
    )


def _build_binding_response(
    responses: ResponseWriter, request: ApiRequest, kind: Kind, result: WriteResult
) -> ApiResponse:
    return build_json_response(_build_success_status(201), 201)


def _get_write_key(call: ApiCall) -> tuple[str, str]:
    """The verb and subresource of a call; the legacy resource for bindings is the subresource of a pod."""
    return call.verb, "binding" if call.plural == BINDINGS and not call.group else call.subresource


_Write = Callable[[WriteVerbs, ApiRequest, Kind], Awaitable[WriteResult]]
_BuildResponse = Callable[[ResponseWriter, ApiRequest, Kind, WriteResult], ApiResponse]

_WRITES: Mapping[tuple[str, str], tuple[_Write, _BuildResponse]] = {
    ("create", ""): (WriteVerbs._create, _build_write_response),
    ("create", "binding"): (WriteVerbs._bind, _build_binding_response),
    ("update", "finalize"): (WriteVerbs._update, _build_write_response),
    **{
        (verb, subresource): (write, _build_write_response)
        for subresource in ("", "status", "ephemeralcontainers", "resize")
        for verb, write in (("update", WriteVerbs._update), ("patch", WriteVerbs._patch))
    },
    ("delete", ""): (WriteVerbs._delete, _build_delete_response),
}
"""How one object is written, and the response, by verb and subresource."""

VerbEndpoint = Callable[[RequestDispatcher, ApiRequest, Kind], Awaitable[ApiResponse]]

_VERB_ENDPOINTS: Mapping[tuple[str, str], VerbEndpoint] = {
    ("get", ""): RequestDispatcher._get,
    ("get", "status"): RequestDispatcher._get,
    ("get", "ephemeralcontainers"): RequestDispatcher._get,
    ("get", "resize"): RequestDispatcher._get,
    ("get", "log"): RequestDispatcher._get_log,
    ("list", ""): RequestDispatcher._list,
    ("watch", ""): RequestDispatcher._watch,
    ("deletecollection", ""): RequestDispatcher._delete_collection,
    ("create", "eviction"): RequestDispatcher._evict,
}
