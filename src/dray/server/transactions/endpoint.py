"""The endpoint of transactions: authorizes every request, decides them all, and commits them together.

Theory of operation: every request is authorized as if it had been sent alone, before any is decided. Then
they are decided one after the other (`staged_registry`) and committed as one sequence, in which each step has
a revision of its own. When a compare fails, another writer was faster: the cache catches up, and everything
is decided again. After some attempts the transaction takes the locks of all keys that it writes or lost, in
their order.

Rules for this file: it knows no kind and no rule; every refusal is the error of one of the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from dray.api.transactions import FAILED_REQUEST_REASON, GROUP, KIND, VERSION
from dray.api.validation import find_deprecation_warning
from dray.errors import InputError
from dray.server.http.errors import ApiStatusError, new_bad_request, new_conflict
from dray.server.http.requests import (
    JSON,
    ApiCall,
    ApiRequest,
    ApiResponse,
    PartResult,
    RequestUser,
)
from dray.server.http.responses import build_warning_headers
from dray.server.http.routing import check_served
from dray.server.registry.dispatcher import WriteVerbs, check_options
from dray.server.registry.object_registry import (
    LOCK_AFTER_ATTEMPTS,
    MAX_ATTEMPTS,
    ObjectRegistry,
    WriteResult,
)
from dray.server.transactions.staged_registry import StagedRegistry, StagedStep, run_at_once
from dray.store import SequenceConflict

Authorize = Callable[[ApiCall, RequestUser], str]
"""Why a call is allowed; raises an `ApiStatusError` when it is not."""

_HEAD = f'{{"apiVersion":"{GROUP}/{VERSION}","kind":"{KIND}","status":{{"responses":['.encode()


class TransactionEndpoint:
    """Carries out transactions."""

    def __init__(
        self, registry: ObjectRegistry, staged: StagedRegistry, verbs: WriteVerbs, authorize: Authorize
    ) -> None:
        """`verbs` write into `staged`."""
        self._registry = registry
        self._staged = staged
        self._verbs = verbs
        self._authorize = authorize

    async def answer(self, request: ApiRequest) -> ApiResponse:
        """Carry out all requests of a transaction, or none."""
        parts = request.parts
        keys: set[bytes] = set()
        lost = 0
        for attempt in range(MAX_ATTEMPTS):
            async with self._registry.key_locks.hold(keys if attempt >= LOCK_AFTER_ATTEMPTS else ()):
                await self._registry.wait_for_cache(self._registry.cache.wait_until_fresh())
                if not attempt:
                    parts = self._admit_parts(parts)
                steps, results = self._decide(parts)
                outcome = await self._registry.commit_sequence([each.step for each in steps], request.record)
            if not isinstance(outcome, SequenceConflict):
                done = [
                    step.complete_result(result, number, outcome.revisions)
                    for number, (step, result) in enumerate(zip(steps, results, strict=True))
                ]
                return self._build_response(parts, done)
            lost = outcome.step
            keys.update(write.key for each in steps for write in each.step.writes)
            keys.update(failed.compare.key for failed in outcome.failed)
            await self._registry.wait_for_cache(self._registry.cache.wait_for_revision(outcome.revision))
        call = parts[lost].call
        assert call.kind is not None
        conflict = new_conflict(call.kind, call.name, "too many clients write at the same time; try again")
        raise _build_part_error(conflict, parts, lost)

    def _admit_parts(self, parts: Sequence[ApiRequest]) -> tuple[ApiRequest, ...]:
        """The requests with the reasons why they are allowed."""
        allowed: list[ApiRequest] = []
        with _name_refused(parts, allowed):
            for part in parts:
                reason = self._authorize(part.call, part.user)
                check_served(part.call)
                check_options(part.call)
                allowed.append(replace(part, authorization_reason=reason))
        return tuple(allowed)

    def _decide(self, parts: Sequence[ApiRequest]) -> tuple[list[StagedStep], list[WriteResult]]:
        results: list[WriteResult] = []
        with self._staged.stage() as steps, _name_refused(parts, results):
            for part in parts:
                assert part.call.kind is not None
                results.append(run_at_once(self._verbs.write(part, part.call.kind)))
        return steps, results

    def _build_response(self, parts: Sequence[ApiRequest], results: Sequence[WriteResult]) -> ApiResponse:
        bodies: list[bytes] = []
        outcomes: list[PartResult] = []
        headers: dict[tuple[str, str], None] = {}
        for part, result in zip(parts, results, strict=True):
            assert part.call.kind is not None
            warning = find_deprecation_warning(part.call.kind, part.call.version)
            response = self._verbs.build_response(part, part.call.kind, result)
            assert isinstance(response.body, bytes)
            if warning is not None:
                headers |= dict.fromkeys(build_warning_headers([warning]))
            if response.headers:
                headers |= dict.fromkeys(response.headers)
            bodies.append(b'{"code":%d,"body":%s}' % (response.code, response.body))
            outcomes.append(PartResult(response.code, result.stored.name, response.body, response.stored))
        body = b"%s%s]}}" % (_HEAD, b",".join(bodies))
        return ApiResponse(201, body, JSON, tuple(headers), parts=tuple(outcomes))


@contextmanager
def _name_refused(parts: Sequence[ApiRequest], done: Sequence[object]) -> Iterator[None]:
    """Say in an error that it is about the request after those that are `done`."""
    try:
        yield
    except ApiStatusError as error:
        raise _build_part_error(error, parts, len(done)) from None
    except InputError as error:
        raise _build_part_error(new_bad_request(str(error)), parts, len(done)) from None


def _build_part_error(error: ApiStatusError, parts: Sequence[ApiRequest], number: int) -> ApiStatusError:
    which = f"request {number + 1} of {len(parts)} ({describe_call(parts[number].call)})"
    details = dict(error.details or {})
    cause = {"reason": FAILED_REQUEST_REASON, "message": which, "field": f"spec.requests[{number}]"}
    details["causes"] = [*details.get("causes", ()), cause]
    return ApiStatusError(
        error.code, error.reason, f"{which}: {error.message}", details, headers=error.headers
    )


def describe_call(call: ApiCall) -> str:
    """What a request does: `create resourceclaims default/a`."""
    resource = f"{call.plural}/{call.subresource}" if call.subresource else call.plural
    name = "/".join(part for part in (call.namespace, call.name) if part)
    return " ".join(part for part in (call.verb, resource, name) if part)
