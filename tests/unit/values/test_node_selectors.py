"""Node selectors: which nodes match, merging, and the faults of invalid ones."""

from __future__ import annotations

import msgspec
import pytest

from dray.values.node_selectors import (
    NO_NODES,
    NodeSelector,
    NodeSelectorError,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    UnmergeableSelectors,
    build_node_name_selector,
    check_node_selector,
)

LABELS = {"zone": "z1", "rack": "r1", "cores": "64"}


def need(key: str, operator: str, *values: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=values)


def term(*expressions: NodeSelectorRequirement, fields: tuple[NodeSelectorRequirement, ...] = ()):
    return NodeSelectorTerm(match_expressions=expressions, match_fields=fields)


def selector(*terms: NodeSelectorTerm) -> NodeSelector:
    return NodeSelector(node_selector_terms=terms)


Z1 = need("zone", "In", "z1")
Z2 = need("zone", "In", "z2")
HERE = need("metadata.name", "In", "node-a")
ELSEWHERE = need("metadata.name", "NotIn", "node-a")

MATCHES = [
    ("no terms", selector(), False),
    ("an empty term", selector(term()), False),
    ("an empty term beside a good one", selector(term(), term(Z1)), True),
    ("one term", selector(term(Z1)), True),
    ("the other zone", selector(term(Z2)), False),
    ("terms are alternatives", selector(term(Z2), term(Z1)), True),
    ("requirements add up", selector(term(Z1, need("rack", "In", "r2"))), False),
    ("one of several values", selector(term(need("zone", "In", "z0", "z1"))), True),
    ("absent label, In", selector(term(need("gone", "In", ""))), False),
    ("NotIn", selector(term(need("zone", "NotIn", "z2"))), True),
    ("NotIn, named", selector(term(need("zone", "NotIn", "z1"))), False),
    ("absent label, NotIn", selector(term(need("gone", "NotIn", "z1"))), True),
    ("Exists", selector(term(need("zone", "Exists"))), True),
    ("absent label, Exists", selector(term(need("gone", "Exists"))), False),
    ("DoesNotExist", selector(term(need("zone", "DoesNotExist"))), False),
    ("absent label, DoesNotExist", selector(term(need("gone", "DoesNotExist"))), True),
    ("Gt", selector(term(need("cores", "Gt", "63"))), True),
    ("Gt, equal", selector(term(need("cores", "Gt", "64"))), False),
    ("Lt", selector(term(need("cores", "Lt", "65"))), True),
    ("Lt, equal", selector(term(need("cores", "Lt", "64"))), False),
    ("Gt compares numbers", selector(term(need("cores", "Gt", "9"))), True),
    ("Gt, label is no number", selector(term(need("zone", "Gt", "1"))), False),
    ("Gt, value is no number", selector(term(need("cores", "Gt", "many"))), False),
    ("absent label, Lt", selector(term(need("gone", "Lt", "1"))), False),
    ("unknown operator", selector(term(need("zone", "Like", "z1"))), False),
    ("name", selector(term(fields=(HERE,))), True),
    ("another name", selector(term(fields=(need("metadata.name", "In", "node-b"),))), False),
    ("not this name", selector(term(fields=(ELSEWHERE,))), False),
    ("not another name", selector(term(fields=(need("metadata.name", "NotIn", "node-b"),))), True),
    ("name and label", selector(term(Z1, fields=(HERE,))), True),
    ("name but not label", selector(term(Z2, fields=(HERE,))), False),
    ("unknown field", selector(term(fields=(need("spec.unschedulable", "NotIn", "true"),))), False),
    ("operator that fields do not have", selector(term(fields=(need("metadata.name", "Exists"),))), False),
]


@pytest.mark.parametrize(
    ("wanted", "expected"), [row[1:] for row in MATCHES], ids=[row[0] for row in MATCHES]
)
def test_which_nodes_match(wanted, expected):
    assert wanted.matches("node-a", LABELS) is expected


def test_the_selector_for_one_node():
    only = build_node_name_selector("node-a")
    assert only.matches("node-a", {})
    assert not only.matches("node-b", LABELS)
    assert only.to_document() == {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}
        ]
    }


def test_merging_keeps_the_first_of_equal_requirements_in_order():
    one = selector(term(Z1, need("rack", "In", "r1", "r2"), fields=(HERE,)))
    two = selector(term(need("rack", "In", "r2", "r1"), need("cores", "Exists"), Z1, fields=(HERE,)))
    assert one.merge(two) == selector(
        term(Z1, need("rack", "In", "r1", "r2"), need("cores", "Exists"), fields=(HERE,))
    )
    assert one.merge(one) == one


def test_merging_keeps_requirements_that_differ_in_any_part():
    one, two = selector(term(Z1)), selector(term(Z2, need("zone", "NotIn", "z1")))
    assert one.merge(two) == selector(term(Z1, Z2, need("zone", "NotIn", "z1")))


@pytest.mark.parametrize("nothing", [selector(), selector(term())], ids=["no terms", "an empty term"])
def test_merging_with_a_selector_that_matches_nothing_matches_nothing(nothing):
    somewhere = selector(term(Z1))
    assert somewhere.merge(nothing) == nothing.merge(somewhere) == NO_NODES
    assert not NO_NODES.matches("node-a", LABELS)


def test_selectors_of_several_terms_are_not_merged():
    one, two = selector(term(Z1)), selector(term(Z1), term(Z2))
    refused = UnmergeableSelectors("a node selector with 2 terms cannot be merged; expected one term")
    assert one.merge(two) == two.merge(one) == refused


def test_documents_are_read_and_rendered():
    document = {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    {"key": "zone", "operator": "In", "values": ["z1"]},
                    {"key": "x", "operator": "Exists"},
                ]
            },
            {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-b"]}]},
        ]
    }
    found = NodeSelector.from_document(document)
    assert found == selector(
        term(Z1, need("x", "Exists")), term(fields=(need("metadata.name", "NotIn", "node-b"),))
    )
    assert found.to_document() == document
    assert NO_NODES.to_document() == {}
    assert msgspec.json.decode(msgspec.json.encode(found), type=NodeSelector) == found


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ("zone=z1", "Expected `object`, got `str`"),
        ({"terms": []}, "unknown field `terms`"),
        (
            {"nodeSelectorTerms": [{"matchLabels": {}}]},
            "unknown field `matchLabels` - at `$.nodeSelectorTerms[0]`",
        ),
        (
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": 1}]}]},
            "Expected `str`, got `int` - at `$.nodeSelectorTerms[0].matchExpressions[0].key`",
        ),
    ],
)
def test_an_invalid_document_is_refused_with_its_path(document, place):
    with pytest.raises(NodeSelectorError) as refusal:
        NodeSelector.from_document(document)
    assert place in str(refusal.value)


def test_selectors_are_frozen_and_hashable():
    one = selector(term(Z1, fields=(HERE,)))
    assert len({one, NodeSelector.from_document(one.to_document())}) == 1
    with pytest.raises(AttributeError):
        one.node_selector_terms = ()  # type: ignore[misc]


NAME_PART = "name part must be non-empty"
ONE_VALUE = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"

FAULTS = [
    (selector(), [("Required", "nodeSelectorTerms", "must have at least one node selector term")]),
    (selector(term()), []),
    (selector(term(Z1, fields=(HERE,))), []),
    (
        selector(term(need("zone", "In"))),
        [("Required", "E[0].values", "must be specified when `operator` is 'In' or 'NotIn'")],
    ),
    (
        selector(term(Z1, need("zone", "Exists", "z1"))),
        [("Forbidden", "E[1].values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")],
    ),
    (
        selector(term(need("zone", "Lt", "1", "2"))),
        [("Required", "E[0].values", "must be specified single value when `operator` is 'Lt' or 'Gt'")],
    ),
    (
        selector(term(need("zone", "Gt", "many"))),
        [("Invalid", "E[0].values[0]", "must be an integer when `operator` is 'Lt' or 'Gt'")],
    ),
    (
        selector(term(need("zone", "Like", "z"))),
        [("Invalid", "E[0].operator", "not a valid selector operator")],
    ),
    (
        selector(term(need("zone", "In", "z1", "-1"))),
        [("Invalid", "E[0].values[1]", "a valid label must be an empty string")],
    ),
    (
        selector(term(need("", "In"))),
        [
            ("Required", "E[0].values", "must be specified when"),
            ("Invalid", "E[0].key", NAME_PART),
            ("Invalid", "E[0].key", "name part must consist of"),
        ],
    ),
    (
        selector(term(fields=(need("metadata.name", "In", "a", "b"),))),
        [("Required", "F[0].values", ONE_VALUE)],
    ),
    (
        selector(term(fields=(need("metadata.name", "Exists"),))),
        [("Invalid", "F[0].operator", "not a valid selector operator")],
    ),
    (
        selector(term(fields=(need("metadata.uid", "In", "A"),))),
        [("Invalid", "F[0].key", "not a valid field selector key")],
    ),
    (
        selector(term(fields=(need("metadata.name", "In", "A"),))),
        [("Invalid", "F[0].values[0]", "a lowercase RFC 1123 subdomain")],
    ),
]


@pytest.mark.parametrize(("bad", "expected"), FAULTS)
def test_faults_are_found_in_order_with_type_path_and_text(bad, expected):
    found = check_node_selector(bad)
    assert len(found) == len(expected)
    for fault, (kind, place, text) in zip(found, expected, strict=True):
        where = place.replace("E[", "nodeSelectorTerms[0].matchExpressions[")
        assert fault.kind == f"FieldValue{kind}"
        assert fault.path == where.replace("F[", "nodeSelectorTerms[0].matchFields[")
        assert text in fault.text
        assert str(fault) == f"{fault.path}: {fault.text}"


def test_faults_of_every_term_are_found():
    found = check_node_selector(selector(term(Z1), term(need("zone", "Like"))))
    assert [fault.path for fault in found] == ["nodeSelectorTerms[1].matchExpressions[0].operator"]
