"""What an admission webhook answers: a review in, a review out, by the driver's own schema.

Theory of operation: the opaque parameters of an object that are meant for this driver are looked at, each
with its place, and decoded by the schema that the driver will use later. Of an update only what changed is
judged: an object that was stored before the schema became stricter can still be finished and deleted.
Parameters of other drivers, other kinds, and objects that cannot be read are none of our business and are
allowed.

Rules for this file: pure but for the one question who drives a class. A body that is no review is
`NotAReview`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dray.api.classic import ClassicClaim, ResourceClass
from dray.api.codec import Decoded, decode_document
from dray.api.conversion import place_in
from dray.api.json_text import read_json
from dray.api.resource import DeviceClass, ResourceClaim, ResourceClaimTemplate
from dray.driver.base import Parameters
from dray.driver.parameters import BadParameters, decode
from dray.errors import DecodeError, InputError

REVIEW: Final = ("admission.k8s.io/v1", "AdmissionReview")
_SHOWN: Final = 10

ClassDriver = Callable[[str], Awaitable[str | None]]
"""Says which driver allocates claims of a class; None when nobody knows."""


class NotAReview(InputError):  # noqa: N818 - what is the case
    """A body that is no AdmissionReview."""


@dataclass(frozen=True)
class Checks:
    """What to check: the driver, its schemas, and how to find the driver of a classic claim."""

    driver: str
    parameters: Parameters = None
    """Of claims, templates and device classes."""
    class_parameters: Parameters = None
    """Of classic classes."""
    class_driver: ClassDriver | None = None


class _Piece(NamedTuple):
    """Parameters for this driver: where they stand, their schema, and as they were written."""

    place: str
    schema: Parameters
    written: bytes


async def reviewed(checks: Checks, body: bytes) -> dict[str, Any]:
    """The answer to a review."""
    request = _request(body)
    uid, refusal, warnings = request["uid"], "", []
    if request.get("operation") in ("CREATE", "UPDATE"):
        try:
            refusal = "; ".join([text async for text in _problems(checks, request)][:_SHOWN])
        except DecodeError as unreadable:
            warnings = [f"parameters for {checks.driver} were not checked: {unreadable}"]
    response: dict[str, Any] = {"uid": uid, "allowed": not refusal}
    if refusal:
        response["status"] = {"code": 422, "reason": "Invalid", "message": refusal}
    if warnings:
        response["warnings"] = warnings
    return {"apiVersion": REVIEW[0], "kind": REVIEW[1], "response": response}


def _request(body: bytes) -> Mapping[str, Any]:
    try:
        review = read_json(body)
    except DecodeError as broken:
        raise NotAReview(f"the body is not JSON: {broken}") from None
    if not isinstance(review, dict) or (review.get("apiVersion"), review.get("kind")) != REVIEW:
        raise NotAReview(f"expected an object of kind `{REVIEW[1]}` in version `{REVIEW[0]}`")
    request = review.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str) or not request["uid"]:
        raise NotAReview("expected `request` with a `uid`")
    return request


async def _problems(checks: Checks, request: Mapping[str, Any]) -> Any:
    new = _object(request.get("object"))
    if new is None:
        return
    old = _object(request.get("oldObject"))
    known = {piece.written for piece in await _pieces(checks, old)} if old is not None else frozenset()
    for piece in await _pieces(checks, new):
        if piece.written in known:
            continue
        try:
            decode(piece.schema, piece.written, place_in(new.kind, new.version, piece.place))
        except BadParameters as wrong:
            for problem in wrong.problems:
                yield str(problem)


def _object(document: Any) -> Decoded | None:
    """What is reviewed, when it is of a kind that we know."""
    if not isinstance(document, dict):
        return None
    try:
        return decode_document(document)
    except DecodeError:
        if not _is_ours(document):
            return None
        raise


def _is_ours(document: Mapping[str, Any]) -> bool:
    group = str(document.get("apiVersion")).partition("/")[0]
    return group in ("resource.k8s.io", "cdi.k8s.io")


async def _pieces(checks: Checks, decoded: Decoded) -> list[_Piece]:
    obj = decoded.object
    match obj:
        case ResourceClaim():
            return list(_opaque(checks, obj.spec.devices.config, "spec.devices.config"))
        case ResourceClaimTemplate():
            return list(_opaque(checks, obj.spec.spec.devices.config, "spec.spec.devices.config"))
        case DeviceClass():
            return list(_opaque(checks, obj.spec.config, "spec.config"))
        case ResourceClass() if obj.driver_name == checks.driver:
            return _classic(checks.class_parameters, obj.parameters, "parameters")
        case ClassicClaim():
            if checks.class_driver is not None:
                driver = await checks.class_driver(obj.spec.resource_class_name)
                if driver == checks.driver:
                    return _classic(checks.parameters, obj.spec.parameters, "spec.parameters")
    return []


def _opaque(checks: Checks, config: Iterable[Any], place: str) -> Iterator[_Piece]:
    for at, entry in enumerate(config):
        if entry.opaque is not None and entry.opaque.driver == checks.driver:
            where = f"{place}[{at}].opaque.parameters"
            yield _Piece(where, checks.parameters, bytes(entry.opaque.parameters) or b"null")


def _classic(schema: Parameters, raw: Any, place: str) -> list[_Piece]:
    """Classic drivers without a schema read parameters themselves, and none need be given."""
    return [] if schema is None or not bytes(raw) else [_Piece(place, schema, bytes(raw))]
