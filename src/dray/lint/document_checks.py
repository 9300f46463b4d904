"""Checks of one document: decoding, old shapes, feature gates, defaults, validation; and its facts for later.

Theory of operation: an object passes the same stages as at an API server, and each stage may yield findings:
old shapes are repaired, decoding errors are reported, fields behind a disabled gate are dropped, defaults are
filled in, the object is validated. Validation errors have paths of the internal form; a `_PathContext` maps
them back to the fields as they were written.

Rules for this file: no rule of the API is written here; field errors are reworded and located.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from dray.api.codec import DecodedObject, decode_document
from dray.api.conversion import get_struct_type, normalize_document, translate_path
from dray.api.decode_report import UnknownField, check_document
from dray.api.fields import (
    AboveMaximum,
    BelowMinimum,
    FieldError,
    FieldErrorType,
    MalformedQuantity,
    OffGrid,
    SubrequestReference,
    TypeMismatch,
    UnknownName,
)
from dray.api.kinds import Kind, find_kind
from dray.api.strategies.create import CreateStrategyResult, apply_create_strategy
from dray.api.strategies.gated_fields import FeatureGateFilter, find_disabling_gate
from dray.api.validation import collect_warnings, validate_new_document
from dray.errors import DecodeError
from dray.gates import GateSet
from dray.lint.document_kind import KnownObject, WorkloadTemplate, identify
from dray.lint.findings import FieldFinding, LintFinding, ObjectLocation, locate_finding
from dray.lint.legacy.pods import check_spelling, repair_pod
from dray.lint.legacy.repairs import Repair, map_path_back, repair_document
from dray.lint.object_facts import ObjectFacts, add_details
from dray.lint.rules import RULE_BY_FAULT
from dray.lint.selectors.compilation import check_selector_groups
from dray.lint.suggestions import suggest_name
from dray.manifests import ManifestDocument, expand_items
from dray.manifests.documents import join_path

DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class InspectionResult:
    """The findings of one document, its facts for the checks across objects, and how many objects it has."""

    findings: tuple[LintFinding, ...]
    facts: tuple[ObjectFacts, ...]
    objects: int


def inspect_document(document: ManifestDocument, gates: GateSet, *, now: str) -> InspectionResult:
    """Check one document and every object in it."""
    findings = [
        locate_finding(
            FieldFinding(
                "duplicate-key",
                duplicate.path,
                f"`{duplicate.key}` stands here a second time; the first is at line {duplicate.first.line}",
                expected="every key once",
                hint="readers keep the last value and forget the others",
            ),
            document,
            _format_subject(document.value),
            duplicate.second,
        )
        for duplicate in document.duplicates
    ]
    facts: list[ObjectFacts] = []
    objects = 0
    for item in expand_items(document):
        subject = _format_subject(item.value)
        for result in _inspect_object(item, subject, gates, now):
            if isinstance(result, ObjectFacts):
                facts.append(result)
            else:
                findings.append(locate_finding(result, item, subject))
                objects -= result.rule == "not-checked"
        objects += 1
    return InspectionResult(tuple(findings), tuple(facts), objects)


def _format_subject(value: Any) -> str:
    """`ResourceClaim ml/train`, as far as the document has these fields."""
    if not isinstance(value, Mapping):
        return ""
    metadata = value.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    name = metadata.get("name") or metadata.get("generateName") or ""
    full = f"{metadata['namespace']}/{name}" if metadata.get("namespace") else f"{name}"
    return f"{value.get('kind') or 'object'} {full}".strip()


def _inspect_object(
    item: ManifestDocument, subject: str, gates: GateSet, now: str
) -> Iterator[FieldFinding | ObjectFacts]:
    value = item.value
    if not isinstance(value, dict):
        found = "a list" if isinstance(value, list) else "plain text or a number"
        yield FieldFinding(
            "not-an-object", "", f"expected an object, got {found}", expected="`apiVersion` and `kind`"
        )
        return
    identity = identify(value)
    location = ObjectLocation(item.source.name, item.ordinal, item.prefix, subject)
    match identity:
        case FieldFinding():
            yield identity
        case KnownObject(kind=kind, version=version) if kind.name == "Pod":
            pod, repairs = repair_pod(value)
            yield from (repair.finding for repair in repairs)
            yield from check_spelling(pod)
            yield from _validate_object(pod, _PathContext(kind, version, repairs), location, gates, now)
        case KnownObject(kind=kind, version=version):
            value, repairs = (
                repair_document(value, kind.name, version) if _is_device_kind(kind) else (value, [])
            )
            yield from (repair.finding for repair in repairs)
            yield from _validate_object(value, _PathContext(kind, version, repairs), location, gates, now)
        case WorkloadTemplate(template=path):
            yield from _inspect_pod_template(value, path, location, gates, now)


def _is_device_kind(kind: Kind) -> bool:
    return kind.group == "resource.k8s.io"


def _inspect_pod_template(
    value: Mapping[str, Any], template_path: str, location: ObjectLocation, gates: GateSet, now: str
) -> Iterator[FieldFinding | ObjectFacts]:
    """The pod template of a workload, checked as a pod of the workload's name."""
    template: Any = value
    for name in template_path.split("."):
        template = template.get(name) if isinstance(template, Mapping) else None
    if not isinstance(template, Mapping):
        return
    owner = value.get("metadata")
    owner = owner if isinstance(owner, Mapping) else {}
    given = template.get("metadata")
    metadata = {**(given if isinstance(given, Mapping) else {}), "name": owner.get("name") or "pod"}
    metadata["namespace"] = owner.get("namespace") or DEFAULT_NAMESPACE
    kind = find_kind("", "Pod")
    assert kind is not None
    pod, repairs = repair_pod(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec")}
    )
    context = _PathContext(kind, "v1", repairs, template_path)
    for finding in (*(repair.finding for repair in repairs), *check_spelling(pod)):
        yield replace(finding, path=join_path(template_path, finding.path))
    yield from _validate_object(pod, context, location, gates, now)


@dataclass(frozen=True, slots=True)
class _PathContext:
    """The kind and version of an object, and the mapping of its paths to those in the file."""

    kind: Kind
    version: str
    repairs: list[Repair]
    prefix: str = ""

    def to_written_path(self, path: str) -> str:
        """The path in the file of a path of the internal form."""
        return self.restore_repaired_path(translate_path(self.kind, self.version, path))

    def restore_repaired_path(self, path: str) -> str:
        """The path in the file of a path of the version."""
        return join_path(self.prefix, map_path_back(path, self.repairs))


def _validate_object(
    value: Mapping[str, Any], context: _PathContext, location: ObjectLocation, gates: GateSet, now: str
) -> Iterator[FieldFinding | ObjectFacts]:
    """Decode, default and validate an object; its findings and its facts."""
    gate = find_disabling_gate(context.kind, gates)
    if gate is not None:
        what = f"`{context.kind.name}` of `{context.kind.format_api_version(context.version)}`"
        message = f"{what} is not served: feature gate `{gate}` is off"
        hint = f"`--feature-gates {gate}=true` turns it on"
        yield FieldFinding("gate-off", "apiVersion", message, expected=f"gate `{gate}` on", hint=hint)
        return
    try:
        decoded = decode_document(value)
    except DecodeError as error:
        yield from _report_decode_errors(value, context, error)
        return
    yield from (_report_unknown_field(field, context) for field in decoded.unknown_fields)
    created = _create_object(decoded, context.kind, gates, now)
    for dropped in created.dropped:
        yield FieldFinding(
            "field-dropped",
            context.to_written_path(dropped.path),
            f"dropped when the object is stored: feature gate `{dropped.gate}` is off",
            expected=f"no such field, or gate `{dropped.gate}` on",
            hint=f"`--feature-gates {dropped.gate}=true` turns it on",
            at_key=True,
        )
    obj = created.object
    name = "" if context.prefix else obj.metadata.name
    facts = ObjectFacts(location, context.kind.group, context.kind.name, obj.metadata.namespace, name)
    facts = add_details(facts, obj, context.to_written_path)
    groups, unusable = check_selector_groups(facts.selector_groups, gates)
    yield from unusable
    yield from _report_field_errors(created, context, {finding.path for finding in unusable})
    yield replace(facts, selector_groups=groups)


def _create_object(decoded: DecodedObject, kind: Kind, gates: GateSet, now: str) -> CreateStrategyResult:
    """What a server would make of a new object, with the errors of its struct and of its document."""
    obj = _apply_default_namespace(decoded.object, kind)
    created = apply_create_strategy(kind, obj, FeatureGateFilter(gates), now=now)
    if decoded.document is None:
        return created
    errors = validate_new_document(kind, decoded.document)
    return replace(created, errors=(*created.errors, *errors))


def _report_field_errors(
    validated: CreateStrategyResult, context: _PathContext, reported_paths: set[str]
) -> Iterator[FieldFinding]:
    """The errors and warnings of validation.

    Validation compiles selectors, too, with less detail: paths with a finding are not reported again.
    """
    broken = _merge_findings(_convert_field_error(error, context) for error in validated.errors)
    yield from (finding for finding in broken if finding.path not in reported_paths)
    for warning in collect_warnings(validated.object):
        yield FieldFinding("suspicious", context.to_written_path(warning.path), warning.text)


def _apply_default_namespace(obj: Any, kind: Kind) -> Any:
    """The object in the default namespace when it names none, as tools apply it."""
    if not kind.namespaced or obj.metadata.namespace:
        return obj
    metadata = msgspec.structs.replace(obj.metadata, namespace=DEFAULT_NAMESPACE)
    return msgspec.structs.replace(obj, metadata=metadata)


def _report_decode_errors(
    value: Mapping[str, Any], context: _PathContext, decode_error: DecodeError
) -> Iterator[FieldFinding]:
    if not decode_error.problems:
        yield FieldFinding("not-an-object", "", str(decode_error))
        return
    _, found = check_document(
        normalize_document(context.kind, value), get_struct_type(context.kind, context.version)
    )
    yield from (_report_unknown_field(field, context) for field in found.unknown_fields)
    yield from (_convert_field_error(error, context, internal=False) for error in found.type_errors)


def _report_unknown_field(field: UnknownField, context: _PathContext) -> FieldFinding:
    known = ", ".join(f"`{name}`" for name in field.known_fields)
    return FieldFinding(
        "unknown-field",
        context.restore_repaired_path(field.path),
        f"unknown field `{field.name}`",
        expected=f"one of {known}" if known else "no such field",
        hint=f"did you mean `{field.suggestion}`?" if field.suggestion else "",
        at_key=True,
    )


_EXPECTED_BY_FAULT: Mapping[FieldErrorType, str] = {
    FieldErrorType.REQUIRED: "a value",
    FieldErrorType.DUPLICATE: "every value once",
    FieldErrorType.FORBIDDEN: "no such field here",
    FieldErrorType.NOT_FOUND: "the name of something that exists",
}
_QUOTING_HINTS: Mapping[tuple[str, str], str] = {
    ("a string", "a boolean"): "YAML reads `y`, `n`, `yes`, `no`, `on` and `off` as booleans; quote the text",
    ("a string", "a number"): "quote it if it is text",
    ("an integer", "a string"): "no quotes around a number",
}


def _convert_field_error(error: FieldError, context: _PathContext, *, internal: bool = True) -> FieldFinding:
    """A field error in the words of lint: what is there, and what was expected."""
    path = (context.to_written_path if internal else context.restore_repaired_path)(error.path)
    # A rule about a key of a map names the map; the value it reports is the key.
    is_key = isinstance(error.value, str) and error.type is FieldErrorType.INVALID
    finding = FieldFinding(
        RULE_BY_FAULT[error.type],
        path,
        replace(error, detail="").body,
        expected=error.detail or _EXPECTED_BY_FAULT.get(error.type, ""),
        at_key=error.type is FieldErrorType.FORBIDDEN,
        pointer_path=f"{path}[{error.value}]" if is_key else "",
    )
    return _add_violation(finding, error)


def _add_violation(finding: FieldFinding, error: FieldError) -> FieldFinding:
    """The finding with what the broken rule says beyond its text."""
    message = finding.message
    match error.violation:
        case SubrequestReference(request):
            name = (
                f"`{error.value}` names an alternative; a container uses a request, whichever one was chosen"
            )
            return FieldFinding("subrequest-in-pod", finding.path, name, expected=f"`{request}`")
        case TypeMismatch(expected, found):
            hint = _QUOTING_HINTS.get((expected, found), "")
            return replace(finding, message=f"{message}, which is {found}", expected=expected, hint=hint)
        case UnknownName(allowed):
            return replace(finding, hint=suggest_name(str(error.value), allowed))
        case MalformedQuantity(problem, hint):
            expected = "a quantity, for example `10Gi` or `500m`"
            return replace(finding, message=f"{message}, {problem}", expected=expected, hint=hint)
        case AboveMaximum(maximum):
            return replace(finding, message=f"{message}, {error.detail}", expected=f"at most {maximum}")
        case BelowMinimum(minimum):
            return replace(finding, message=f"{message}, {error.detail}", expected=f"at least {minimum}")
        case OffGrid(start, step):
            expected = f"{start} plus a multiple of {step}"
            return replace(finding, message=f"{message}, {error.detail}", expected=expected)
        case None if str(error.value).count('"') == 1:
            return replace(finding, hint="a quote is missing at the other end of the text")
        case None:
            return finding


def _merge_findings(findings: Iterable[FieldFinding]) -> list[FieldFinding]:
    """Several rules that one value breaks, as one finding."""
    merged: dict[tuple[str, str, str], FieldFinding] = {}
    for finding in findings:
        key = (finding.rule, finding.path, finding.message)
        first = merged.get(key)
        if first is not None and finding.expected not in first.expected:
            finding = replace(first, expected=f"{first.expected}; {finding.expected}")
        merged[key] = finding
    return list(merged.values())
