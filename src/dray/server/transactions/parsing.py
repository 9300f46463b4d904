"""Parsing of transactions: from the body to the requests in it, each as a client would have sent it alone.

Theory of operation: the body is decoded into its struct in one pass; the bodies of the requests stay bytes.
Only a body that is refused is walked again, to name everything that is wrong with it. Each request is routed,
and gets the user, the headers and the audit id of the transaction.

Rules for this file: it says what a transaction may contain; whether the user may do it is decided later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import starmap
from typing import Final

import msgspec
from msgspec.structs import replace

from dray.api.decode_report import check_document
from dray.api.fields import (
    ROOT,
    FieldError,
    FieldErrorType,
    invalid,
    not_supported,
    too_long,
)
from dray.api.json_text import read_json, write_json
from dray.api.kinds import Kind, get_kind
from dray.api.limits import PATH_BYTES_PER_REQUEST, REQUESTS_PER_TRANSACTION
from dray.api.transactions import (
    GROUP,
    JSON_TYPE,
    KIND,
    METHODS,
    PATCH_TYPES,
    VERSION,
    Transaction,
    TransactionRequest,
)
from dray.errors import DecodeError
from dray.server.http.errors import ApiStatusError, new_bad_request, new_unsupported_media_type
from dray.server.http.requests import ApiCall, ApiRequest
from dray.server.http.routing import Router
from dray.server.registry.dispatcher import WriteVerbs

_API_VERSION: Final = f"{GROUP}/{VERSION}"
_DECODER: Final = msgspec.json.Decoder(Transaction)
_REQUESTS: Final = ROOT.child("spec").child("requests")

_ALONE: Final = "is written alone: it decides which other writes are admitted"
LONE_KINDS: Final = frozenset(
    starmap(
        get_kind,
        (
            ("", "Namespace"),
            ("", "ResourceQuota"),
            ("resource.k8s.io", "ResourceSlice"),
            ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
            ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
            ("rbac.authorization.k8s.io", "ClusterRole"),
            ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
            ("rbac.authorization.k8s.io", "Role"),
            ("rbac.authorization.k8s.io", "RoleBinding"),
        ),
    )
)
"""Kinds that no transaction writes: rules keep indexes of them, which show only what is committed."""


class TransactionParser:
    """Finds the requests of a transaction."""

    def __init__(self, router: Router, verbs: WriteVerbs) -> None:
        self._router = router
        self._verbs = verbs

    def parse(self, request: ApiRequest) -> ApiRequest:
        """The transaction with its requests as `parts`; raises an `ApiStatusError` when it is not valid."""
        if request.content_type != JSON_TYPE:
            raise new_unsupported_media_type((JSON_TYPE,))
        if request.call.dry_run:
            raise new_bad_request("a transaction has no dry run; send its requests one by one to try them")
        given = _decode(request.body).spec.requests
        errors = _check_count(given)
        errors += (error for number, one in enumerate(given) for error in _check_fields(one, number))
        calls = [] if errors else [self._route(one) for one in given]
        if not errors:
            errors += (error for number, call in enumerate(calls) for error in self._check_call(call, number))
        if errors:
            raise _new_invalid(errors)
        return replace(request, parts=tuple(map(_build_part, [request] * len(given), given, calls)))

    def _route(self, given: TransactionRequest) -> ApiCall:
        path, _, query = given.path.partition("?")
        if not query:
            # Writes name their objects: hardly any path comes twice, so none is remembered.
            return self._router.route_parsed(given.method, path, {})
        return self._router.route(given.method, path, query)

    def _check_call(self, call: ApiCall, number: int) -> Iterator[FieldError]:
        """What a transaction does not do, whoever asks; a path that is not served is refused later."""
        why = ""
        if call.dry_run:
            why = "a transaction has no dry run; leave `dryRun` out"
        elif call.kind is None:
            is_unknown = call.unserved_code and call.is_resource
            why = "" if is_unknown else "is not the path of an object"
        elif call.kind in LONE_KINDS:
            why = f"{_describe_kind(call.kind)} {_ALONE}"
        elif not call.unserved_code and not self._verbs.supports(call):
            what = f"{call.verb} {call.plural}" + (f"/{call.subresource}" if call.subresource else "")
            why = f"a transaction writes single objects; it cannot {what}"
        if why:
            yield invalid(_REQUESTS.index(number).child("path"), call.path, why)


def _decode(body: bytes) -> Transaction:
    try:
        transaction = _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        transaction = _decode_slowly(body)
    for field, given, expected in (
        ("kind", transaction.kind, KIND),
        ("API version", transaction.api_version, _API_VERSION),
    ):
        if given != expected:
            raise new_bad_request(
                f"the {field} in the data ({given}) does not match the expected {field} ({expected})"
            )
    return transaction


def _decode_slowly(body: bytes) -> Transaction:
    """Decode a body that may have nulls; raises an `ApiStatusError` with everything that is wrong with it."""
    if not body.strip():
        raise new_bad_request(f"the request has no body; expected a {KIND}")
    try:
        document = read_json(body)
        kept, found = check_document(document, Transaction)
        problems = [*map(str, found.unknown_fields), *(f"{e.path}: {e.detail}" for e in found.type_errors)]
        if not problems:
            return _DECODER.decode(write_json(kept))
    except DecodeError as error:
        raise new_bad_request(f"the object provided is unrecognized: {error}") from None
    shown = "; ".join(problem.removeprefix(": ") for problem in problems[:20])
    raise new_bad_request(f'{KIND} in version "{VERSION}" cannot be handled as a {KIND}: {shown}')


def _check_count(given: Sequence[TransactionRequest]) -> list[FieldError]:
    if not given:
        return [FieldError(FieldErrorType.REQUIRED, str(_REQUESTS), "", "a transaction has requests")]
    if len(given) <= REQUESTS_PER_TRANSACTION:
        return []
    detail = f"must have at most {REQUESTS_PER_TRANSACTION} items"
    return [FieldError(FieldErrorType.TOO_MANY, str(_REQUESTS), len(given), detail)]


def _check_fields(given: TransactionRequest, number: int) -> Iterator[FieldError]:
    if given.method not in METHODS:
        yield not_supported(_REQUESTS.index(number).child("method"), given.method, METHODS)
        return
    if not given.path.startswith("/"):
        yield invalid(_REQUESTS.index(number).child("path"), given.path, "must begin with `/`")
    elif len(given.path.encode()) > PATH_BYTES_PER_REQUEST:
        yield too_long(_REQUESTS.index(number).child("path"), PATH_BYTES_PER_REQUEST)
    types = PATCH_TYPES if given.method == "PATCH" else (JSON_TYPE,)
    if given.content_type not in types:
        yield not_supported(_REQUESTS.index(number).child("contentType"), given.content_type, types)


def _build_part(request: ApiRequest, given: TransactionRequest, call: ApiCall) -> ApiRequest:
    headers = {
        "content-type": given.content_type,
        "accept": JSON_TYPE,
        "user-agent": request.headers.get("user-agent", ""),
    }
    body = bytes(given.body)
    return replace(
        request,
        call=call,
        headers=headers,
        body=b"" if body == b"null" else body,
        authorization_reason="",
    )


def _describe_kind(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def _new_invalid(errors: Sequence[FieldError]) -> ApiStatusError:
    texts = [str(error) for error in errors]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [
        {"reason": error.type.value, "message": error.body, "field": str(error.path)} for error in errors
    ]
    details = {"group": GROUP, "kind": KIND, "causes": causes}
    return ApiStatusError(422, "Invalid", f'{KIND}.{GROUP} "" is invalid: {text}', details)
