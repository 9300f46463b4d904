"""Adding a kind is a row and a struct: every kind has its row in each table, or names its default.

A kind that the server only stores (`Kind.is_opaque`) may have no rows at all. Every other kind needs a row in
each table below, or its name in the list of kinds that have the default of that table on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest

from dray.api.kinds import KINDS, Kind
from dray.api.resource import DeviceClass
from dray.server.auth.authz.bootstrap_roles import build_bootstrap_documents
from dray.server.discovery import resources
from dray.server.objects.stored_object import get_storage_kind
from dray.server.patch.schema.kind_structures import STRUCTURES
from dray.server.registry.strategies import DEFAULT_STRATEGY, STRATEGIES, get_strategy
from dray.server.tables import rendering
from dray.wire.kubernetes import has_message

NAMES = {(kind.group, kind.name) for kind in KINDS}
_WEBHOOK_CONFIGURATIONS = (
    "MutatingWebhookConfiguration.admissionregistration.k8s.io",
    "ValidatingWebhookConfiguration.admissionregistration.k8s.io",
)


def read_role_resources() -> set[tuple[str, str]]:
    """Group and resource of every bootstrap rule that does not grant everything."""
    rules = [rule for document in build_bootstrap_documents() for rule in document.get("rules") or ()]
    return {
        (group, resource)
        for rule in rules
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        if group != "*"
    }


ROLE_RESOURCES = read_role_resources()


@dataclass(frozen=True)
class Facet:
    """One table with a row per kind, and the kinds that have its default on purpose."""

    table: str
    has_row: Callable[[Kind], bool]
    default: str
    defaults: frozenset[str] = frozenset()


FACETS = (
    Facet(
        "strategies: dray.server.registry.strategies.STRATEGIES",
        lambda kind: (get_storage_kind(kind).group, get_storage_kind(kind).name) in STRATEGIES,
        "a generation, no selectable fields, no changes on create, update and delete",
    ),
    Facet(
        "table columns: dray.server.tables.rendering._COLUMNS",
        lambda kind: (kind.group, kind.name) in rendering._COLUMNS,
        "the columns Name and Age",
        frozenset(_WEBHOOK_CONFIGURATIONS),
    ),
    Facet(
        "list types and merge keys: dray.server.patch.schema.tables",
        lambda kind: (kind.group, kind.name) in STRUCTURES,
        "lists that are replaced whole",
    ),
    Facet(
        "protobuf bodies: dray.wire.kubernetes.messages",
        lambda kind: has_message(kind.internal_api_version, kind.name),
        "bodies in JSON and YAML only",
        frozenset({"Preparation.dray.dev", "ResourceClaim.cdi.k8s.io", "ResourceClass.cdi.k8s.io"}),
    ),
    Facet(
        "roles: dray.server.auth.authz.bootstrap_roles",
        lambda kind: (kind.group, kind.plural) in ROLE_RESOURCES,
        "access for administrators only",
        frozenset(_WEBHOOK_CONFIGURATIONS),
    ),
)


@pytest.mark.parametrize("facet", FACETS, ids=lambda facet: facet.table.partition(":")[0])
@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if not kind.is_opaque], ids=lambda kind: kind.qualified_name
)
def test_every_kind_has_a_row_in_every_table_or_names_its_default(kind: Kind, facet: Facet) -> None:
    has_default = kind.qualified_name in facet.defaults
    assert facet.has_row(kind) != has_default, (
        f"{kind.qualified_name} needs either a row in {facet.table}, or its name in `defaults` "
        f"of that facet here, which means: {facet.default}"
    )


def test_a_kind_without_rows_is_found() -> None:
    new = Kind("example.com", "Thing", "things", DeviceClass)
    assert [facet.table for facet in FACETS if facet.has_row(new)] == []


SERVED_BY_OTHERS = {
    ("certificates.k8s.io", "signers"),
    ("custom.metrics.k8s.io", "*"),
    ("external.metrics.k8s.io", "*"),
    ("metrics.k8s.io", "pods"),
}
"""What roles of Kubernetes name beside kinds: an attribute of requests, and APIs of extensions."""


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("strategies", set(STRATEGIES)),
        ("columns", set(rendering._COLUMNS)),
        ("list types", set(STRUCTURES)),
        (
            "categories",
            {(group, plural) for group, (_, row) in resources._CATEGORIES.items() for plural in row},
        ),
        ("unsupported verbs", set(resources.UNSUPPORTED_VERBS)),
        ("roles", {(group, name.partition("/")[0]) for group, name in ROLE_RESOURCES} - SERVED_BY_OTHERS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_row_is_of_a_kind_in_the_table_of_kinds(table: str, rows: set[tuple[str, str]]) -> None:
    plurals = {(kind.group, kind.plural) for kind in KINDS}
    virtual = {
        (row.group, row.plural) for row in (*resources.VIRTUAL_RESOURCES, resources.TRANSACTION_RESOURCE)
    }
    wildcards = {(kind.group, "*") for kind in KINDS}
    assert rows <= NAMES | plurals | virtual | wildcards, table


def test_every_subresource_of_a_kind_has_its_verbs() -> None:
    assert {name for kind in KINDS for name in kind.subresources} == set(resources._SUBRESOURCES)


def test_an_alias_has_the_strategy_of_the_kind_it_is_stored_as() -> None:
    for kind in KINDS:
        assert get_strategy(kind) is get_strategy(get_storage_kind(kind))
        if kind.is_opaque and (kind.group, kind.name) not in STRATEGIES:
            assert get_strategy(kind) is DEFAULT_STRATEGY


@pytest.mark.parametrize(
    "kind",
    [kind for kind in KINDS if not kind.open and get_strategy(kind).selectable_fields],
    ids=lambda kind: kind.qualified_name,
)
def test_the_selectable_fields_of_a_closed_kind_are_fields_of_its_struct(kind: Kind) -> None:
    for path in get_strategy(kind).selectable_fields:
        struct: object = kind.type
        for name in path.split("."):
            assert isinstance(struct, type), path
            assert issubclass(struct, msgspec.Struct), path
            fields = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
            assert name in fields, f"{kind.qualified_name} has no field {path}"
            struct = fields[name]
