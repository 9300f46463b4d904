"""Admission reviews of opaque parameters: decodes them by the driver's schema, and allows or refuses.

Theory of operation: a review collects the opaque parameters of an object that are meant for this driver, each
with its path, and decodes them by the schema that the driver uses later. In an update it checks only
parameters that changed: an object that was stored before the schema became stricter can still be finalized
and deleted. Parameters of other drivers, other kinds, and objects that cannot be decoded are allowed.

Rules for this file: pure, except for the lookup of a class's driver. A body that is no review raises
`NotAdmissionReviewError`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dray.api.classic import ClassicResourceClaim, ResourceClass
from dray.api.codec import DecodedObject, decode_document
from dray.api.conversion import translate_path
from dray.api.json_text import read_json
from dray.api.resource import DeviceClass, ResourceClaim, ResourceClaimTemplate
from dray.driver.base import Parameters
from dray.driver.parameters import InvalidParametersError, decode_parameters
from dray.errors import DecodeError, InputError

REVIEW: Final = ("admission.k8s.io/v1", "AdmissionReview")
_MAX_SHOWN: Final = 10

ClassDriverLookup = Callable[[str], Awaitable[str | None]]
"""Returns the driver that allocates claims of a class; None when it is unknown."""


class NotAdmissionReviewError(InputError):
    """The body of a request is no AdmissionReview."""


@dataclass(frozen=True)
class ParameterReviewConfig:
    """What a review checks: the driver, its schemas, and how to find the driver of a classic claim."""

    driver: str
    parameters: Parameters = None
    """Of claims, templates and device classes."""
    class_parameters: Parameters = None
    """Of classic classes."""
    class_driver_lookup: ClassDriverLookup | None = None


class _WrittenParameters(NamedTuple):
    """Parameters for this driver: their path, their schema, and the JSON as it was written."""

    path: str
    schema: Parameters
    written: bytes


async def review_admission(config: ParameterReviewConfig, body: bytes) -> dict[str, Any]:
    """Answer an AdmissionReview."""
    request = _parse_request(body)
    uid, refusal, warnings = request["uid"], "", []
    if request.get("operation") in ("CREATE", "UPDATE"):
        try:
            refusal = "; ".join([text async for text in _find_problems(config, request)][:_MAX_SHOWN])
        except DecodeError as unreadable:
            warnings = [f"parameters for {config.driver} were not checked: {unreadable}"]
    response: dict[str, Any] = {"uid": uid, "allowed": not refusal}
    if refusal:
        response["status"] = {"code": 422, "reason": "Invalid", "message": refusal}
    if warnings:
        response["warnings"] = warnings
    return {"apiVersion": REVIEW[0], "kind": REVIEW[1], "response": response}


def _parse_request(body: bytes) -> Mapping[str, Any]:
    try:
        review = read_json(body)
    except DecodeError as broken:
        raise NotAdmissionReviewError(f"the body is not JSON: {broken}") from None
    if not isinstance(review, dict) or (review.get("apiVersion"), review.get("kind")) != REVIEW:
        raise NotAdmissionReviewError(f"expected an object of kind `{REVIEW[1]}` in version `{REVIEW[0]}`")
    request = review.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str) or not request["uid"]:
        raise NotAdmissionReviewError("expected `request` with a `uid`")
    return request


async def _find_problems(config: ParameterReviewConfig, request: Mapping[str, Any]) -> Any:
    new = _decode_object(request.get("object"))
    if new is None:
        return
    old = _decode_object(request.get("oldObject"))
    unchanged = (
        {each.written for each in await _collect_parameters(config, old)} if old is not None else frozenset()
    )
    for each in await _collect_parameters(config, new):
        if each.written in unchanged:
            continue
        try:
            decode_parameters(each.schema, each.written, translate_path(new.kind, new.version, each.path))
        except InvalidParametersError as wrong:
            for problem in wrong.problems:
                yield str(problem)


def _decode_object(document: Any) -> DecodedObject | None:
    """Decode the object under review; None when its kind is unknown."""
    if not isinstance(document, dict):
        return None
    try:
        return decode_document(document)
    except DecodeError:
        if not _is_known_group(document):
            return None
        raise


def _is_known_group(document: Mapping[str, Any]) -> bool:
    group = str(document.get("apiVersion")).partition("/")[0]
    return group in ("resource.k8s.io", "cdi.k8s.io")


async def _collect_parameters(
    config: ParameterReviewConfig, decoded: DecodedObject
) -> list[_WrittenParameters]:
    obj = decoded.object
    match obj:
        case ResourceClaim():
            return list(_collect_opaque(config, obj.spec.devices.config, "spec.devices.config"))
        case ResourceClaimTemplate():
            return list(_collect_opaque(config, obj.spec.spec.devices.config, "spec.spec.devices.config"))
        case DeviceClass():
            return list(_collect_opaque(config, obj.spec.config, "spec.config"))
        case ResourceClass() if obj.driver_name == config.driver:
            return _collect_classic(config.class_parameters, obj.parameters, "parameters")
        case ClassicResourceClaim():
            if config.class_driver_lookup is not None:
                driver = await config.class_driver_lookup(obj.spec.resource_class_name)
                if driver == config.driver:
                    return _collect_classic(config.parameters, obj.spec.parameters, "spec.parameters")
    return []


def _collect_opaque(
    review_config: ParameterReviewConfig, config: Iterable[Any], path: str
) -> Iterator[_WrittenParameters]:
    for position, entry in enumerate(config):
        if entry.opaque is not None and entry.opaque.driver == review_config.driver:
            written = bytes(entry.opaque.parameters) or b"null"
            entry_path = f"{path}[{position}].opaque.parameters"
            yield _WrittenParameters(entry_path, review_config.parameters, written)


def _collect_classic(schema: Parameters, raw: Any, path: str) -> list[_WrittenParameters]:
    """Classic drivers without a schema decode parameters themselves, and parameters are optional."""
    return [] if schema is None or not bytes(raw) else [_WrittenParameters(path, schema, bytes(raw))]
