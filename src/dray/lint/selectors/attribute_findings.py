"""Findings about attributes and capacities in a selector: unknown names, and types that devices do not
publish.

Theory of operation: an attribute that no device has is a typo when devices publish others in its domain, or
when its domain is almost one that exists. An unknown domain is not reported: its driver may be elsewhere. A
type is wrong only when *no* device that has the attribute fits; the rule `attribute-type-differs` reports
devices that contradict each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from dray.api.devices.selector_analysis import LIST, SelectorAnalysis, TypedUse
from dray.api.devices.selector_guards import format_field_path
from dray.api.devices.selector_references import ATTRIBUTES, CAPACITY, FieldKey, FieldReference
from dray.lint.findings import FieldFinding
from dray.lint.rules import Severity
from dray.lint.selectors.device_models import DeviceModel, DeviceModelIndex
from dray.lint.selectors.evaluation import SelectorOutcome
from dray.lint.suggestions import TYPO_SIMILARITY, add_article, format_choices, suggest_name

_KIND_NOUNS: Mapping[str, str] = MappingProxyType({ATTRIBUTES: "attribute", CAPACITY: "capacity"})
_OTHER_KIND: Mapping[str, str] = MappingProxyType({ATTRIBUTES: CAPACITY, CAPACITY: ATTRIBUTES})


def describe_field(field_key: FieldKey) -> str:
    """An attribute or capacity in words."""
    return f"{_KIND_NOUNS[field_key[0]]} `{field_key[2]}`"


# --- names ---


def find_unknown_fields(
    expression: str, analysis: SelectorAnalysis, models: DeviceModelIndex
) -> dict[FieldKey, FieldFinding]:
    """The attributes and capacities that a selector mentions and no device has."""
    mentioned: dict[FieldKey, list[FieldReference]] = {}
    for reference in analysis.references:
        mentioned.setdefault(reference.key, []).append(reference)
    found = {}
    for field_key, references in mentioned.items():
        if field_key[2] not in models.names_by_domain.get(field_key[:2], ()):
            # A presence test expects that it may be missing.
            certain = any(reference.is_required for reference in references)
            finding = _check_reference(expression, references[0], models, certain)
            if finding is not None:
                found[field_key] = finding
    return found


def _check_reference(
    expression: str, reference: FieldReference, models: DeviceModelIndex, certain: bool
) -> FieldFinding | None:
    kind, domain, name = reference.key
    if domain not in models.list_domains():
        return _check_domain(expression, reference, models)
    published = models.names_by_domain.get((kind, domain), set())
    hint = suggest_name(name, published)
    if name in models.names_by_domain.get((_OTHER_KIND[kind], domain), ()):
        other = (_OTHER_KIND[kind], domain, name)
        hint = f"it is {add_article(_KIND_NOUNS[other[0]])}: `{format_field_path(other)}`"
    if not certain and not hint:
        return None
    return FieldFinding(
        "unknown-attribute",
        "",
        f"no device publishes {describe_field(reference.key)} in domain `{domain}`",
        expected=format_choices(published, f"{add_article(_KIND_NOUNS[kind])} that devices publish"),
        hint=hint,
        text_offset=(expression, reference.name_offset),
    )


def _check_domain(
    expression: str, reference: FieldReference, models: DeviceModelIndex
) -> FieldFinding | None:
    kind, domain, name = reference.key
    first, _, rest = domain.partition("/")
    known = models.list_domains()
    hint = suggest_name(domain, known, TYPO_SIMILARITY)
    if first in known:
        hint = f"did you mean `{format_field_path((kind, first, rest or name))}`?"
    if not hint:
        return None
    before = expression.rfind(domain, 0, reference.name_offset)
    return FieldFinding(
        "unknown-attribute",
        "",
        f"no device publishes anything in domain `{domain}`",
        expected=format_choices(known, "the domain of a driver"),
        hint=hint,
        text_offset=(expression, before if before >= 0 else max(0, expression.find(domain))),
    )


# --- types ---

_TYPE_HINTS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("int", "string"): "write the number without quotes",
        ("bool", "string"): "write `true` or `false` without quotes",
        ("version", "string"): 'write a version: `semver("1.2.3")`',
        ("string", "int"): "write text, in quotes",
        ("string", "bool"): "compare it with text, in quotes",
        ("string", "version"): "write text, in quotes; it is no version",
        ("int", "bool"): "compare it with a number",
        ("string", "quantity"): "only capacities are quantities; `quantity(…)` makes one of text",
        (LIST, "string"): "`.includes(…)` is true when the list holds a value",
        (LIST, "int"): "`.includes(…)` is true when the list holds a value",
        ("string", LIST): "it is one value, no list: compare it with `==`",
        ("int", LIST): "it is one value, no list: compare it with `==`",
    }
)
"""Published type and type it is used as: what to do."""


def find_wrong_types(
    expression: str, analysis: SelectorAnalysis, outcome: SelectorOutcome
) -> dict[FieldKey, FieldFinding]:
    """Attributes that are used as another type than devices publish."""
    found: dict[FieldKey, FieldFinding] = {}
    for use in analysis.typed_uses:
        having = [model for model in outcome.evaluated if model.has_field(use.reference.key)]
        types = {model.get_attribute_type(use.reference.domain, use.reference.name) for model in having}
        published = sorted(one for one in types if one is not None)
        if published and not use.accepted_types.intersection(published):
            found.setdefault(
                use.reference.key, _report_wrong_type(expression, use, published, (having, outcome))
            )
    return found


def _report_wrong_type(
    expression: str, use: TypedUse, published: list[str], seen: tuple[list[DeviceModel], SelectorOutcome]
) -> FieldFinding:
    having, outcome = seen
    failing = {id(model) for model, _ in outcome.faults}
    fails = all(id(model) in failing for model in having)
    is_, taken = (" or ".join(_describe_types(names)) for names in (published, use.accepted_types))
    message = (
        f"{describe_field(use.reference.key)} is {is_} on every device that has it, and "
        f"is taken for {taken} here"
    )
    example = having[0].format_value(use.reference.key)
    if published[0] == "string":
        example = f'"{example}"'
    return FieldFinding(
        "selector-wrong-type",
        "",
        f"{message}; that fails on all of them" if fails else message,
        expected=f"{is_}, for example `{example}`",
        hint=next(
            (
                _TYPE_HINTS[published[0], name]
                for name in use.accepted_types
                if (published[0], name) in _TYPE_HINTS
            ),
            "",
        ),
        severity=Severity.ERROR if fails else None,
        text_offset=(expression, use.reference.name_offset),
    )


def _describe_types(types: Iterable[str]) -> Iterator[str]:
    return (add_article(name) for name in sorted(types) if "(" not in name)
