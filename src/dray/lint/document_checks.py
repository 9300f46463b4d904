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
from dray.api.conversion import place_in, shape_of, tidied
from dray.api.decode_report import UnknownField, examine
from dray.api.fields import Fault, FieldError
from dray.api.kinds import Kind, kind_named
from dray.api.strategies.create import Judged, judge
from dray.api.strategies.gated_fields import Gatekeeper, closed_by
from dray.api.validation import warnings_of
from dray.errors import DecodeError
from dray.gates import GateSet
from dray.lint.document_kind import Known, Workload, identify
from dray.lint.findings import Complaint, Finding, Where, placed
from dray.lint.legacy.pods import repaired_pod, spelling
from dray.lint.legacy.repairs import Repair, came_from, repaired
from dray.lint.object_facts import Facts, details_of
from dray.lint.rules import OF_FAULT
from dray.lint.selectors.compilation import examined
from dray.lint.suggestions import did_you_mean
from dray.manifests import Document, expanded
from dray.manifests.documents import below

DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Inspected:
    """Everything about one document: what to say, what to remember, how many objects were looked into."""

    findings: tuple[Finding, ...]
    facts: tuple[Facts, ...]
    objects: int


def inspect(document: Document, gates: GateSet, *, now: str) -> Inspected:
    """Look into one document and every object in it."""
    findings = [
        placed(
            Complaint(
                "duplicate-key",
                twice.path,
                f"`{twice.key}` stands here a second time; the first is at line {twice.first.line}",
                expected="every key once",
                hint="readers keep the last value and forget the others",
            ),
            document,
            _subject(document.value),
            twice.again,
        )
        for twice in document.duplicates
    ]
    facts: list[Facts] = []
    objects = 0
    for item in expanded(document):
        subject = _subject(item.value)
        for said in _object(item, subject, gates, now):
            if isinstance(said, Facts):
                facts.append(said)
            else:
                findings.append(placed(said, item, subject))
                objects -= said.rule == "not-checked"
        objects += 1
    return Inspected(tuple(findings), tuple(facts), objects)


def _subject(value: Any) -> str:
    """`ResourceClaim ml/train`, as far as the document says so."""
    if not isinstance(value, Mapping):
        return ""
    metadata = value.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    name = metadata.get("name") or metadata.get("generateName") or ""
    full = f"{metadata['namespace']}/{name}" if metadata.get("namespace") else f"{name}"
    return f"{value.get('kind') or 'object'} {full}".strip()


def _object(item: Document, subject: str, gates: GateSet, now: str) -> Iterator[Complaint | Facts]:
    value = item.value
    if not isinstance(value, dict):
        found = "a list" if isinstance(value, list) else "plain text or a number"
        yield Complaint(
            "not-an-object", "", f"expected an object, got {found}", expected="`apiVersion` and `kind`"
        )
        return
    identity = identify(value)
    where = Where(item.source.name, item.ordinal, item.prefix, subject)
    match identity:
        case Complaint():
            yield identity
        case Known(kind=kind, version=version) if kind.name == "Pod":
            pod, repairs = repaired_pod(value)
            yield from (repair.complaint for repair in repairs)
            yield from spelling(pod)
            yield from _judged(pod, _Seat(kind, version, repairs), where, gates, now)
        case Known(kind=kind, version=version):
            value, repairs = repaired(value, kind.name, version) if _has_devices(kind) else (value, [])
            yield from (repair.complaint for repair in repairs)
            yield from _judged(value, _Seat(kind, version, repairs), where, gates, now)
        case Workload(template=way):
            yield from _pods_of(value, way, where, gates, now)


def _has_devices(kind: Kind) -> bool:
    return kind.group == "resource.k8s.io"


def _pods_of(
    value: Mapping[str, Any], way: str, where: Where, gates: GateSet, now: str
) -> Iterator[Complaint | Facts]:
    """The pod template of a workload, checked as a pod of the workload's name."""
    template: Any = value
    for name in way.split("."):
        template = template.get(name) if isinstance(template, Mapping) else None
    if not isinstance(template, Mapping):
        return
    owner = value.get("metadata")
    owner = owner if isinstance(owner, Mapping) else {}
    given = template.get("metadata")
    metadata = {**(given if isinstance(given, Mapping) else {}), "name": owner.get("name") or "pod"}
    metadata["namespace"] = owner.get("namespace") or DEFAULT_NAMESPACE
    kind = kind_named("", "Pod")
    assert kind is not None
    pod, repairs = repaired_pod(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec")}
    )
    seat = _Seat(kind, "v1", repairs, way)
    for complaint in (*(repair.complaint for repair in repairs), *spelling(pod)):
        yield replace(complaint, path=below(way, complaint.path))
    yield from _judged(pod, seat, where, gates, now)


@dataclass(frozen=True, slots=True)
class _Seat:
    """An object's kind and version, and the way back from its internal form to how it was written."""

    kind: Kind
    version: str
    repairs: list[Repair]
    prefix: str = ""

    def place(self, path: str) -> str:
        """A path of the internal form, as it was written."""
        return self.written(place_in(self.kind, self.version, path))

    def written(self, path: str) -> str:
        """A path of the version, as it was written."""
        return below(self.prefix, came_from(path, self.repairs))


def _judged(
    value: Mapping[str, Any], seat: _Seat, where: Where, gates: GateSet, now: str
) -> Iterator[Complaint | Facts]:
    """Bring an object through the doors; what it meets there, and what to remember of it."""
    closed = closed_by(seat.kind, gates)
    if closed is not None:
        what = f"`{seat.kind.name}` of `{seat.kind.api_version(seat.version)}`"
        message = f"{what} is not served: feature gate `{closed}` is off"
        hint = f"`--feature-gates {closed}=true` turns it on"
        yield Complaint("gate-off", "apiVersion", message, expected=f"gate `{closed}` on", hint=hint)
        return
    try:
        decoded = decode_document(value)
    except DecodeError as refused:
        yield from _undecodable(value, seat, refused)
        return
    yield from (_unknown(field, seat) for field in decoded.unknown)
    judged = judge(seat.kind, _settled(decoded.object, seat.kind), Gatekeeper(gates), now=now)
    for dropped in judged.dropped:
        yield Complaint(
            "field-dropped",
            seat.place(dropped.path),
            f"dropped when the object is stored: feature gate `{dropped.gate}` is off",
            expected=f"no such field, or gate `{dropped.gate}` on",
            hint=f"`--feature-gates {dropped.gate}=true` turns it on",
            at_key=True,
        )
    obj = judged.object
    details = details_of(obj, seat.place)
    details["asks"], unusable = examined(details.get("asks", ()), gates)
    yield from unusable
    yield from _breaking(judged, seat, {complaint.path for complaint in unusable})
    yield Facts(
        where,
        seat.kind.group,
        seat.kind.name,
        obj.metadata.namespace,
        "" if seat.prefix else obj.metadata.name,
        **details,
    )


def _breaking(judged: Judged, seat: _Seat, said: set[str]) -> Iterator[Complaint]:
    """The rules an object breaks, and what validation finds odd about it.

    Validation compiles selectors, too, and says less about what it finds: what was said is not said again.
    """
    broken = _merged(_worded(error, seat) for error in judged.errors)
    yield from (complaint for complaint in broken if complaint.path not in said)
    for caution in warnings_of(judged.object):
        yield Complaint("suspicious", seat.place(caution.path), caution.text)


def _settled(obj: Any, kind: Kind) -> Any:
    """The object in the namespace that tools put it in when it names none."""
    if not kind.namespaced or obj.metadata.namespace:
        return obj
    metadata = msgspec.structs.replace(obj.metadata, namespace=DEFAULT_NAMESPACE)
    return msgspec.structs.replace(obj, metadata=metadata)


def _undecodable(value: Mapping[str, Any], seat: _Seat, refused: DecodeError) -> Iterator[Complaint]:
    if not refused.problems:
        yield Complaint("not-an-object", "", str(refused))
        return
    _, found = examine(tidied(seat.kind, value), shape_of(seat.kind, seat.version))
    yield from (_unknown(field, seat) for field in found.unknown)
    yield from (_worded(error, seat, internal=False) for error in found.wrong)


def _unknown(field: UnknownField, seat: _Seat) -> Complaint:
    known = ", ".join(f"`{name}`" for name in field.known)
    return Complaint(
        "unknown-field",
        seat.written(field.path),
        f"unknown field `{field.name}`",
        expected=f"one of {known}" if known else "no such field",
        hint=f"did you mean `{field.near}`?" if field.near else "",
        at_key=True,
    )


_EXPECTED: Mapping[Fault, str] = {
    Fault.REQUIRED: "a value",
    Fault.DUPLICATE: "every value once",
    Fault.FORBIDDEN: "no such field here",
    Fault.NOT_FOUND: "the name of something that exists",
}
_TYPES = re.compile(r"expected (?P<expected>.*), got (?P<got>[^,]*)")
_QUOTE: Mapping[tuple[str, str], str] = {
    ("a string", "a boolean"): "YAML reads `y`, `n`, `yes`, `no`, `on` and `off` as booleans; quote the text",
    ("a string", "a number"): "quote it if it is text",
    ("an integer", "a string"): "no quotes around a number",
}
_QUOTED = re.compile(r'[`"]([^`"]+)[`"]')
# Some rules say what is, not what should be; these are what follows from them.
_FOLLOWS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r".* is (?:larger|more) than .*: (.+)"), r"at most \1"),
    (re.compile(r".* is less than .*: (.+)"), r"at least \1"),
    (re.compile(r".* is not a multiple of a given step \((.+)\) from \((.+)\)"), r"\2 plus a multiple of \1"),
)


def _worded(error: FieldError, seat: _Seat, *, internal: bool = True) -> Complaint:
    """A field error in the words of lint: what is there, and what was expected."""
    path = (seat.place if internal else seat.written)(error.path)
    message = error.body.removesuffix(f": {error.detail}") if error.detail else error.body
    expected = error.detail or _EXPECTED.get(error.fault, "")
    types = _TYPES.fullmatch(error.detail)
    hint = ""
    if types:
        message, expected = f"{message}, which is {types['got']}", types["expected"]
        hint = _QUOTE.get((expected, types["got"]), "")
    if error.path.endswith(".request") and "/" in str(error.value):
        return Complaint(
            "subrequest-in-pod",
            path,
            f"`{error.value}` names an alternative; a container uses a request, whichever one was chosen",
            expected=f"`{str(error.value).partition('/')[0]}`",
        )
    if error.fault in (Fault.NOT_FOUND, Fault.NOT_SUPPORTED):
        hint = did_you_mean(str(error.value), _QUOTED.findall(error.detail))
    elif error.fault is Fault.INVALID and not internal:  # the only values that decoding judges
        why, _, hint = error.detail.removeprefix(f"`{error.value}`: ").partition("; ")
        message, expected = f"{message}, {why}", "a quantity, for example `10Gi` or `500m`"
    elif follows := _follows(error.detail):
        message, expected = f"{message}, {error.detail}", follows
    elif str(error.value).count('"') == 1:
        hint = "a quote is missing at the other end of the text"
    forbidden = error.fault is Fault.FORBIDDEN
    # A rule about a key of a map names the map; the value it complains about is the key.
    key = f"{path}[{error.value}]" if isinstance(error.value, str) and error.fault is Fault.INVALID else ""
    rule = OF_FAULT[error.fault]
    return Complaint(rule, path, message, expected=expected, hint=hint, at_key=forbidden, at=key)


def _follows(statement: str) -> str:
    """What to expect, from a rule that only says what is wrong."""
    found = ((pattern.fullmatch(statement), text) for pattern, text in _FOLLOWS)
    return next((match.expand(text) for match, text in found if match), "")


def _merged(complaints: Iterable[Complaint]) -> list[Complaint]:
    """Several rules that one value breaks, as one complaint."""
    merged: dict[tuple[str, str, str], Complaint] = {}
    for complaint in complaints:
        key = (complaint.rule, complaint.path, complaint.message)
        first = merged.get(key)
        if first is not None and complaint.expected not in first.expected:
            complaint = replace(first, expected=f"{first.expected}; {complaint.expected}")
        merged[key] = complaint
    return list(merged.values())
