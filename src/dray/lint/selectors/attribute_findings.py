"""Names and types in a selector that do not fit what devices publish.

Theory of operation: an attribute that no device has is a slip of the pen when devices publish others in its
domain, or when the domain is almost one that exists. A domain that nobody knows is left alone: its driver may
be elsewhere. A type is wrong only when *no* device that has the attribute fits; devices that contradict each
other are another rule's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from dray.lint.findings import Complaint
from dray.lint.rules import Severity
from dray.lint.selectors.analysis import ATTRIBUTES, CAPACITY, LIST, Need, Reading, Reference, TypedUse
from dray.lint.selectors.device_models import Catalogue, Model
from dray.lint.selectors.evaluation import Outcome
from dray.lint.suggestions import TYPO, did_you_mean

_NOUN: Mapping[str, str] = MappingProxyType({ATTRIBUTES: "attribute", CAPACITY: "capacity"})
_OTHER: Mapping[str, str] = MappingProxyType({ATTRIBUTES: CAPACITY, CAPACITY: ATTRIBUTES})
_FEW = 10


def noun(need: Need) -> str:
    """An attribute or capacity in words."""
    return f"{_NOUN[need[0]]} `{need[2]}`"


def path_of(need: Need) -> str:
    """An attribute or capacity as expressions write it."""
    kind, domain, name = need
    return f'device.{kind}["{domain}"].{name}'


# --- names ---


def unknown_names(expression: str, reading: Reading, catalogue: Catalogue) -> dict[Need, Complaint]:
    """What a selector mentions and no device has."""
    mentioned: dict[Need, list[Reference]] = {}
    for reference in reading.references:
        mentioned.setdefault(reference.need, []).append(reference)
    found = {}
    for need, references in mentioned.items():
        if need[2] not in catalogue.names.get(need[:2], ()):
            # Who only asks whether it is there knows that it may not be.
            certain = any(not reference.tested and not reference.optional for reference in references)
            complaint = _unknown(expression, references[0], catalogue, certain)
            if complaint is not None:
                found[need] = complaint
    return found


def _unknown(expression: str, reference: Reference, catalogue: Catalogue, certain: bool) -> Complaint | None:
    kind, domain, name = reference.need
    if domain not in catalogue.domains():
        return _unknown_domain(expression, reference, catalogue)
    published = catalogue.names.get((kind, domain), set())
    hint = did_you_mean(name, published)
    if name in catalogue.names.get((_OTHER[kind], domain), ()):
        other = (_OTHER[kind], domain, name)
        hint = f"it is {_article(_NOUN[other[0]])}: `{path_of(other)}`"
    if not certain and not hint:
        return None
    return Complaint(
        "unknown-attribute",
        "",
        f"no device publishes {noun(reference.need)} in domain `{domain}`",
        expected=_choice(published, f"{_article(_NOUN[kind])} that devices publish"),
        hint=hint,
        inside=(expression, reference.at),
    )


def _unknown_domain(expression: str, reference: Reference, catalogue: Catalogue) -> Complaint | None:
    kind, domain, name = reference.need
    first, _, rest = domain.partition("/")
    known = catalogue.domains()
    hint = did_you_mean(domain, known, TYPO)
    if first in known:
        hint = f"did you mean `{path_of((kind, first, rest or name))}`?"
    if not hint:
        return None
    before = expression.rfind(domain, 0, reference.at)
    return Complaint(
        "unknown-attribute",
        "",
        f"no device publishes anything in domain `{domain}`",
        expected=_choice(known, "the domain of a driver"),
        hint=hint,
        inside=(expression, before if before >= 0 else max(0, expression.find(domain))),
    )


def _choice(names: Iterable[str], otherwise: str) -> str:
    """The names to choose from, when they are few enough to read."""
    names = sorted(names)
    if not names or len(names) > _FEW:
        return otherwise
    return ("one of " if len(names) > 1 else "") + ", ".join(f"`{name}`" for name in names)


def _article(word: str) -> str:
    return f"{'an' if word[:1] in 'aeiou' else 'a'} {word}"


# --- types ---

_HINTS: Mapping[tuple[str, str], str] = MappingProxyType(
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
"""Published type, type it is taken for: what to do."""


def wrong_types(expression: str, reading: Reading, outcome: Outcome) -> dict[Need, Complaint]:
    """Attributes that are taken for another type than devices publish."""
    found: dict[Need, Complaint] = {}
    for use in reading.uses:
        having = [model for model in outcome.tried if model.has(use.reference.need)]
        types = {model.type_of(use.reference.domain, use.reference.name) for model in having}
        published = sorted(one for one in types if one is not None)
        if published and not use.accepted.intersection(published):
            found.setdefault(use.reference.need, _wrong_type(expression, use, published, (having, outcome)))
    return found


def _wrong_type(
    expression: str, use: TypedUse, published: list[str], seen: tuple[list[Model], Outcome]
) -> Complaint:
    having, outcome = seen
    failing = {id(model) for model, _ in outcome.faults}
    fails = all(id(model) in failing for model in having)
    is_, taken = (" or ".join(_words(names)) for names in (published, use.accepted))
    message = (
        f"{noun(use.reference.need)} is {is_} on every device that has it, and is taken for {taken} here"
    )
    example = having[0].shown(use.reference.need)
    if published[0] == "string":
        example = f'"{example}"'
    return Complaint(
        "selector-wrong-type",
        "",
        f"{message}; that fails on all of them" if fails else message,
        expected=f"{is_}, for example `{example}`",
        hint=next(
            (_HINTS[published[0], name] for name in use.accepted if (published[0], name) in _HINTS), ""
        ),
        severity=Severity.ERROR if fails else None,
        inside=(expression, use.reference.at),
    )


def _words(types: Iterable[str]) -> Iterator[str]:
    return (_article(name) for name in sorted(types) if "(" not in name)
