"""Properties of server-side apply: idempotent, independent managers do not interfere, no absent field is
owned.
"""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.kinds import KINDS
from dray.server.patch import strategic_merge_patch
from dray.server.patch.errors import ApplyConflictError, PatchError
from dray.server.patch.managed_fields.field_comparison import collect_fields, compare_documents
from dray.server.patch.managed_fields.field_ownership import apply_configuration, update_managed_fields
from dray.server.patch.managed_fields.field_set import FieldSet
from dray.server.patch.schema.kind_structures import get_structure
from tests.effort import effort
from tests.property.strategies.patches import pods

(POD,) = (kind for kind in KINDS if (kind.group, kind.name) == ("", "Pod"))
STRUCTURE = get_structure(POD)
NOON, LATER = "2026-01-01T12:00:00Z", "2026-01-01T13:00:00Z"


fewer = effort(0.4)


def with_entries(document, entries):
    return {**document, "metadata": {**document["metadata"], "managedFields": entries}}


def bare(document):
    metadata = {name: value for name, value in document["metadata"].items() if name != "managedFields"}
    return {**document, "metadata": metadata}


def applying(live, configuration, manager, *, force=True, now=NOON):
    before = copy.deepcopy((live, configuration))
    outcome = apply_configuration(POD, live, configuration, manager=manager, force=force, now=now)
    assert (live, configuration) == before
    return with_entries(outcome.document, outcome.managed_fields)


def updating(live, new, manager):
    before = copy.deepcopy((live, new))
    entries = update_managed_fields(POD, live, new, manager=manager, now=NOON)
    assert (live, new) == before
    return with_entries(new, entries)


def owned(document) -> dict[str, FieldSet]:
    entries = document["metadata"]["managedFields"]
    return {f"{one['operation']} {one['manager']}": FieldSet.parse(one["fieldsV1"]) for one in entries}


def unordered(value: Any) -> Any:
    """A document in which the order of list items does not count, nor whether a container is empty."""
    if isinstance(value, dict):
        rest = {name: unordered(item) for name, item in value.items()}
        return {name: item for name, item in rest.items() if item not in ({}, [])}
    if isinstance(value, list):
        return sorted(map(unordered, value), key=repr)
    return value


fields = st.sampled_from(
    [
        "metadata",
        "spec",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "containers",
        "env",
        "name",
        "uid",
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$deleteFromPrimitiveList/finalizers",
    ]
)
strange: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, 0, "", "x", "delete", "replace", [], {}]),
    lambda inner: st.dictionaries(fields, inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=12,
)

writes = st.lists(
    st.tuples(st.sampled_from(["apply", "update"]), st.sampled_from(["me", "you", "she"]), pods()),
    min_size=1,
    max_size=5,
)


def history(steps):
    live = None
    for operation, manager, document in steps:
        live = (
            applying(live, document, manager) if operation == "apply" else updating(live, document, manager)
        )
    return live


@fewer
@given(writes, pods())
def test_applying_twice_is_applying_once(steps, configuration):
    once = applying(history(steps), configuration, "me")
    assert applying(once, configuration, "me", force=False, now=LATER) == once


@fewer
@given(pods("abc"), pods("xyz"))
def test_independent_managers_may_apply_in_any_order(mine, yours):
    one = applying(applying(None, mine, "me"), yours, "you", force=False)
    other = applying(applying(None, yours, "you"), mine, "me", force=False)
    assert unordered(bare(one)) == unordered(bare(other))
    assert owned(one) == owned(other)


@fewer
@given(pods("abc"), pods("xyz"))
def test_a_manager_that_gives_up_all_fields_leaves_the_rest(mine, yours):
    alone = applying(None, mine, "me")
    both = applying(alone, yours, "you", force=False)
    nothing = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    left = applying(both, nothing, "you", force=False)
    assert unordered(bare(left)) == unordered(bare(alone))
    assert owned(left) == owned(alone)


@fewer
@given(writes)
def test_no_absent_field_is_owned(steps):
    live = history(steps)
    there = FieldSet(compare_documents(STRUCTURE, {}, bare(live)).changed).union(
        FieldSet(collect_fields(STRUCTURE, bare(live)))
    )
    containers = {f'k:{{"name":"{one["name"]}"}}' for one in live["spec"].get("containers", [])}
    resources: dict = {key: {"f:resources": {}} for key in containers}
    always = {"f:spec": {".": {}, "f:containers": {".": {}, **resources}}}
    for who, fields in owned(live).items():
        assert there.union(FieldSet.parse(always)).contains(fields), who


@fewer
@given(writes, pods())
def test_after_an_apply_the_object_has_the_applied_values(steps, configuration):
    live = applying(history(steps), configuration, "me")
    changed, _ = compare_documents(STRUCTURE, bare(live), configuration)
    assert changed == {}
    assert (
        owned(live)
        .get("Apply me", FieldSet({}))
        .contains(FieldSet(collect_fields(STRUCTURE, {"spec": configuration["spec"]})))
    )


@fewer
@given(writes, pods())
def test_an_apply_without_force_fails_or_does_the_same(steps, configuration):
    live = history(steps)
    forced = applying(live, configuration, "me")
    before, after = owned(live), owned(forced)
    changed, _ = compare_documents(STRUCTURE, bare(live), bare(forced))
    taken = any(fields.intersection(FieldSet(changed)) for who, fields in before.items() if who != "Apply me")
    if taken:
        with pytest.raises(ApplyConflictError):
            applying(live, configuration, "me", force=False)
        assert before != after
    else:
        assert applying(live, configuration, "me", force=False) == forced


@fewer
@given(writes, pods())
def test_an_update_owns_exactly_what_changed(steps, document):
    live = history(steps)
    changed, _ = compare_documents(STRUCTURE, bare(live), document)
    after = owned(updating(live, document, "they"))
    mine = after.pop("Update they", FieldSet({}))
    assert mine == FieldSet(changed)
    assert not any(mine.intersection(fields) for fields in after.values())


@given(pods(), strange)
def test_whatever_is_sent_is_applied_or_refused(live, sent):
    before = copy.deepcopy((live, sent))
    with contextlib.suppress(PatchError):
        outcome = apply_configuration(POD, live, sent, manager="me", force=True, now=NOON)
        assert outcome.document["metadata"]["name"]
    with contextlib.suppress(PatchError):
        assert isinstance(strategic_merge_patch.apply(POD, live, sent), dict)
    assert (live, sent) == before
