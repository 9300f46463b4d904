"""One document at a time: decode, old shapes, gates, defaults, rules; and what to remember for later.

Theory of operation: an object is brought through the same doors as at an API server, and whatever it meets on
the way is a complaint: old shapes are repaired, what cannot be decoded is named, fields behind a gate that is
off are dropped, defaults are filled in, the rules of the kind are asked. Rules speak of the internal form; a
`Seat` knows the way from there back to the fields as they were written.

Rules for this file: no rule of the API is written here; they are asked, worded and placed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from dray.api.codec import decode_document
from dray.api.conversion import get_struct_type, normalize_document, translate_path
from dray.api.decode_report import UnknownField, check_document
from dray.api.fields import FieldError, FieldErrorType
from dray.api.kinds import Kind, find_kind
from dray.api.strategies.create import CreateStrategyResult, apply_create_strategy
from dray.api.strategies.gated_fields import FeatureGateFilter, find_disabling_gate
from dray.api.validation import collect_warnings
from dray.errors import DecodeError
from dray.gates import GateSet
from dray.lint.document_kind import KnownObject, WorkloadTemplate, identify
from dray.lint.findings import FieldFinding, LintFinding, ObjectLocation, locate_finding
from dray.lint.legacy.pods import check_spelling, repair_pod
from dray.lint.legacy.repairs import Repair, map_path_back, repair_document
from dray.lint.object_facts import ObjectFacts, extract_details
from dray.lint.rules import RULE_BY_FAULT
from dray.lint.selectors.compilation import check_selector_groups
from dray.lint.suggestions import suggest_name
from dray.manifests import ManifestDocument, expand_items
from dray.manifests.documents import join_path

DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class InspectionResult:
    """Everything about one document: what to say, what to remember, how many objects were looked into."""

    findings: tuple[LintFinding, ...]
    facts: tuple[ObjectFacts, ...]
    objects: int


def inspect_document(document: ManifestDocument, gates: GateSet, *, now: str) -> InspectionResult:
    """Look into one document and every object in it."""
    findings = [
        locate_finding(
            FieldFinding(
                "duplicate-key",
                twice.path,
                f"`{twice.key}` stands here a second time; the first is at line {twice.first.line}",
                expected="every key once",
                hint="readers keep the last value and forget the others",
            ),
            document,
            _format_subject(document.value),
            twice.second,
        )
        for twice in document.duplicates
    ]
    facts: list[ObjectFacts] = []
    objects = 0
    for item in expand_items(document):
        subject = _format_subject(item.value)
        for said in _inspect_object(item, subject, gates, now):
            if isinstance(said, ObjectFacts):
                facts.append(said)
            else:
                findings.append(locate_finding(said, item, subject))
                objects -= said.rule == "not-checked"
        objects += 1
    return InspectionResult(tuple(findings), tuple(facts), objects)


def _format_subject(value: Any) -> str:
    """`ResourceClaim ml/train`, as far as the document says so."""
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
    where = ObjectLocation(item.source.name, item.ordinal, item.prefix, subject)
    match identity:
        case FieldFinding():
            yield identity
        case KnownObject(kind=kind, version=version) if kind.name == "Pod":
            pod, repairs = repair_pod(value)
            yield from (repair.finding for repair in repairs)
            yield from check_spelling(pod)
            yield from _validate_object(pod, _PathContext(kind, version, repairs), where, gates, now)
        case KnownObject(kind=kind, version=version):
            value, repairs = (
                repair_document(value, kind.name, version) if _is_device_kind(kind) else (value, [])
            )
            yield from (repair.finding for repair in repairs)
            yield from _validate_object(value, _PathContext(kind, version, repairs), where, gates, now)
        case WorkloadTemplate(template=way):
            yield from _inspect_pod_template(value, way, where, gates, now)


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
    seat = _PathContext(kind, "v1", repairs, template_path)
    for complaint in (*(repair.finding for repair in repairs), *check_spelling(pod)):
        yield replace(complaint, path=join_path(template_path, complaint.path))
    yield from _validate_object(pod, seat, location, gates, now)


@dataclass(frozen=True, slots=True)
class _PathContext:
    """An object's kind and version, and the way back from its internal form to how it was written."""

    kind: Kind
    version: str
    repairs: list[Repair]
    prefix: str = ""

    def to_written_path(self, path: str) -> str:
        """A path of the internal form, as it was written."""
        return self.restore_repaired_path(translate_path(self.kind, self.version, path))

    def restore_repaired_path(self, path: str) -> str:
        """A path of the version, as it was written."""
        return join_path(self.prefix, map_path_back(path, self.repairs))


def _validate_object(
    value: Mapping[str, Any], context: _PathContext, location: ObjectLocation, gates: GateSet, now: str
) -> Iterator[FieldFinding | ObjectFacts]:
    """Bring an object through the doors; what it meets there, and what to remember of it."""
    closed = find_disabling_gate(context.kind, gates)
    if closed is not None:
        what = f"`{context.kind.name}` of `{context.kind.format_api_version(context.version)}`"
        message = f"{what} is not served: feature gate `{closed}` is off"
        hint = f"`--feature-gates {closed}=true` turns it on"
        yield FieldFinding("gate-off", "apiVersion", message, expected=f"gate `{closed}` on", hint=hint)
        return
    try:
        decoded = decode_document(value)
    except DecodeError as refused:
        yield from _report_decode_errors(value, context, refused)
        return
    yield from (_report_unknown_field(field, context) for field in decoded.unknown_fields)
    judged = apply_create_strategy(
        context.kind,
        _apply_default_namespace(decoded.object, context.kind),
        FeatureGateFilter(gates),
        now=now,
    )
    for dropped in judged.dropped:
        yield FieldFinding(
            "field-dropped",
            context.to_written_path(dropped.path),
            f"dropped when the object is stored: feature gate `{dropped.gate}` is off",
            expected=f"no such field, or gate `{dropped.gate}` on",
            hint=f"`--feature-gates {dropped.gate}=true` turns it on",
            at_key=True,
        )
    obj = judged.object
    details = extract_details(obj, context.to_written_path)
    details["asks"], unusable = check_selector_groups(details.get("asks", ()), gates)
    yield from unusable
    yield from _report_field_errors(judged, context, {complaint.path for complaint in unusable})
    yield ObjectFacts(
        location,
        context.kind.group,
        context.kind.name,
        obj.metadata.namespace,
        "" if context.prefix else obj.metadata.name,
        **details,
    )


def _report_field_errors(
    validated: CreateStrategyResult, context: _PathContext, reported_paths: set[str]
) -> Iterator[FieldFinding]:
    """The rules an object breaks, and what validation finds odd about it.

    Validation compiles selectors, too, and says less about what it finds: what was said is not said again.
    """
    broken = _merge_findings(_convert_field_error(error, context) for error in validated.errors)
    yield from (complaint for complaint in broken if complaint.path not in reported_paths)
    for caution in collect_warnings(validated.object):
        yield FieldFinding("suspicious", context.to_written_path(caution.path), caution.text)


def _apply_default_namespace(obj: Any, kind: Kind) -> Any:
    """The object in the namespace that tools put it in when it names none."""
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
_TYPE_ERROR = re.compile(r"expected (?P<expected>.*), got (?P<got>[^,]*)")
_QUOTING_HINTS: Mapping[tuple[str, str], str] = {
    ("a string", "a boolean"): "YAML reads `y`, `n`, `yes`, `no`, `on` and `off` as booleans; quote the text",
    ("a string", "a number"): "quote it if it is text",
    ("an integer", "a string"): "no quotes around a number",
}
_QUOTED_NAME = re.compile(r'[`"]([^`"]+)[`"]')
# Some rules say what is, not what should be; these are what follows from them.
_EXPECTATION_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r".* is (?:larger|more) than .*: (.+)"), r"at most \1"),
    (re.compile(r".* is less than .*: (.+)"), r"at least \1"),
    (re.compile(r".* is not a multiple of a given step \((.+)\) from \((.+)\)"), r"\2 plus a multiple of \1"),
)


def _convert_field_error(error: FieldError, context: _PathContext, *, internal: bool = True) -> FieldFinding:
    """A field error in the words of lint: what is there, and what was expected."""
    path = (context.to_written_path if internal else context.restore_repaired_path)(error.path)
    message = error.body.removesuffix(f": {error.detail}") if error.detail else error.body
    expected = error.detail or _EXPECTED_BY_FAULT.get(error.type, "")
    types = _TYPE_ERROR.fullmatch(error.detail)
    hint = ""
    if types:
        message, expected = f"{message}, which is {types['got']}", types["expected"]
        hint = _QUOTING_HINTS.get((expected, types["got"]), "")
    if error.path.endswith(".request") and "/" in str(error.value):
        return FieldFinding(
            "subrequest-in-pod",
            path,
            f"`{error.value}` names an alternative; a container uses a request, whichever one was chosen",
            expected=f"`{str(error.value).partition('/')[0]}`",
        )
    if error.type in (FieldErrorType.NOT_FOUND, FieldErrorType.NOT_SUPPORTED):
        hint = suggest_name(str(error.value), _QUOTED_NAME.findall(error.detail))
    elif error.type is FieldErrorType.INVALID and not internal:  # the only values that decoding judges
        why, _, hint = error.detail.removeprefix(f"`{error.value}`: ").partition("; ")
        message, expected = f"{message}, {why}", "a quantity, for example `10Gi` or `500m`"
    elif follows := _derive_expectation(error.detail):
        message, expected = f"{message}, {error.detail}", follows
    elif str(error.value).count('"') == 1:
        hint = "a quote is missing at the other end of the text"
    forbidden = error.type is FieldErrorType.FORBIDDEN
    # A rule about a key of a map names the map; the value it complains about is the key.
    key = (
        f"{path}[{error.value}]"
        if isinstance(error.value, str) and error.type is FieldErrorType.INVALID
        else ""
    )
    rule = RULE_BY_FAULT[error.type]
    return FieldFinding(rule, path, message, expected=expected, hint=hint, at_key=forbidden, pointer_path=key)


def _derive_expectation(statement: str) -> str:
    """What to expect, from a rule that only says what is wrong."""
    found = ((pattern.fullmatch(statement), text) for pattern, text in _EXPECTATION_PATTERNS)
    return next((match.expand(text) for match, text in found if match), "")


def _merge_findings(findings: Iterable[FieldFinding]) -> list[FieldFinding]:
    """Several rules that one value breaks, as one complaint."""
    merged: dict[tuple[str, str, str], FieldFinding] = {}
    for complaint in findings:
        key = (complaint.rule, complaint.path, complaint.message)
        first = merged.get(key)
        if first is not None and complaint.expected not in first.expected:
            complaint = replace(first, expected=f"{first.expected}; {complaint.expected}")
        merged[key] = complaint
    return list(merged.values())
