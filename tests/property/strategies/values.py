"""Generated values: quantity texts, versions, names, selectors."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import strategies as st

from dray.values.label_selectors import LabelRequirement, ParsedLabelSelector, SelectorOperator
from dray.values.node_selectors import (
    NODE_NAME_FIELD,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from dray.values.quantity import Quantity, QuantityForm

# What a suffix is worth, written down again so that the tests do not ask the code under test.
SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    **{name: Fraction(1000**power) for power, name in enumerate("kMGTPE", start=1)},
    **{f"{name}i": Fraction(1024**power) for power, name in enumerate("KMGTPE", start=1)},
}

digits = st.text("0123456789", min_size=1, max_size=20)


@st.composite
def number_texts(draw: st.DrawFn) -> str:
    """A number as a person may write it: `+1`, `007.`, `.5`, `12.250`."""
    whole = draw(st.just("") | digits)
    fraction = draw(st.none() | st.just("") | st.text("0123456789", min_size=1, max_size=9))
    if not whole and not fraction:
        whole = "0"
    return draw(st.sampled_from(["", "+", "-"])) + whole + ("" if fraction is None else f".{fraction}")


@st.composite
def quantity_texts(draw: st.DrawFn) -> tuple[str, Fraction]:
    """A well-formed text of a quantity and its exact value, which may be out of bounds."""
    number = draw(number_texts())
    value = Fraction(number)
    if draw(st.booleans()):
        suffix = draw(st.sampled_from(sorted(SUFFIXES)))
        return number + suffix, value * SUFFIXES[suffix]
    exponent = draw(st.integers(-20, 20))
    sign = draw(st.sampled_from(["", "+"])) if exponent >= 0 else ""
    return f"{number}{draw(st.sampled_from('eE'))}{sign}{exponent}", value * Fraction(10) ** exponent


nanos = st.integers(-(10**20), 10**20) | st.integers(-(10**44), 10**44)
quantities = st.builds(Quantity, nanos, st.sampled_from(QuantityForm))
steps = st.builds(Quantity, st.integers(1, 10**20), st.sampled_from(QuantityForm))

numeric_identifiers = st.integers(0, 2**64 - 1).map(str)
words = st.from_regex(r"[0-9A-Za-z-]*[A-Za-z-][0-9A-Za-z-]*", fullmatch=True).map(lambda word: word[:8])
prerelease_identifiers = numeric_identifiers | words.filter(lambda word: not word.isdigit())
build_identifiers = st.text("0123456789ABCabc-", min_size=1, max_size=8)


@st.composite
def versions(draw: st.DrawFn) -> str:
    """A semantic version; small numbers and few words, so that equal beginnings happen."""
    number = st.integers(0, 2).map(str) | numeric_identifiers
    text = ".".join(draw(number) for _ in range(3))
    few = st.sampled_from(["alpha", "beta", "0", "1", "10", "-", "a-b"])
    before = draw(st.lists(few | prerelease_identifiers, max_size=3))
    after = draw(st.lists(build_identifiers, max_size=2))
    return text + ("-" + ".".join(before) if before else "") + ("+" + ".".join(after) if after else "")


label_keys = st.sampled_from(["a", "b", "in", "notin", "zone", "x.io/a", "Z-9_.z"])
label_values = st.sampled_from(["", "a", "b", "in", "1", "7", "007", "x_y.z-1"])
labels = st.dictionaries(label_keys, label_values, max_size=5)
numbers = st.integers(0, 10).map(str)


@st.composite
def label_requirements(draw: st.DrawFn) -> LabelRequirement:
    """A requirement in its normal form: values sorted, each once."""
    key, operator = draw(label_keys), draw(st.sampled_from(SelectorOperator))
    match operator:
        case SelectorOperator.IN | SelectorOperator.NOT_IN:
            values = tuple(sorted(draw(st.sets(label_values, min_size=1, max_size=3))))
        case SelectorOperator.GT | SelectorOperator.LT:
            values = (draw(numbers),)
        case _:
            values = ()
    return LabelRequirement(key, operator, values)


label_selectors = st.sets(label_requirements(), max_size=4).map(
    lambda some: ParsedLabelSelector(tuple(sorted(some)))
)

node_names = st.sampled_from(["node-a", "node-b"])
_operators = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like"])
_expressions = st.builds(
    NodeSelectorRequirement,
    key=label_keys,
    operator=_operators,
    values=st.lists(label_values, max_size=3).map(tuple),
)
_fields = st.builds(
    NodeSelectorRequirement,
    key=st.sampled_from([NODE_NAME_FIELD, NODE_NAME_FIELD, "spec.unschedulable"]),
    operator=_operators,
    values=st.lists(node_names, max_size=2).map(tuple),
)
node_selector_terms = st.builds(
    NodeSelectorTerm,
    match_expressions=st.lists(_expressions, max_size=2).map(tuple),
    match_fields=st.lists(_fields, max_size=1).map(tuple),
)


def node_selectors(most_terms: int = 3) -> st.SearchStrategy[NodeSelector]:
    """Sensible and senseless node selectors, the empty one included."""
    return st.lists(node_selector_terms, max_size=most_terms).map(
        lambda terms: NodeSelector(node_selector_terms=tuple(terms))
    )
