"""Server-side apply: which fields are owned, shared, taken over and given up."""

from __future__ import annotations

import copy
import json

import pytest

from dray.server.patch import json_patch
from dray.server.patch.errors import ApplyConflictError, PatchError
from dray.server.patch.managed_fields.field_ownership import apply_configuration, update_managed_fields
from tests.unit.server.patch.kinds import CLAIM, CONFIG, POD

NOON, LATER = "2026-01-01T12:00:00Z", "2026-01-01T13:00:00Z"
CSA = "kubectl.kubernetes.io/last-applied-configuration"


def config(data, **metadata):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", **metadata}, "data": data}


def pod(*containers, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": list(containers), **spec},
    }


def applying(live, configuration, manager="me", kind=CONFIG, **options):
    """Apply, check that the inputs did not change, and store the result."""
    before = copy.deepcopy((live, configuration))
    options = {"force": False, "now": NOON, **options}
    outcome = apply_configuration(kind, live, configuration, manager=manager, **options)
    assert (live, configuration) == before
    return with_entries(outcome.document, outcome.managed_fields)


def updating(live, new, manager, kind=CONFIG, **options):
    return with_entries(new, update_managed_fields(kind, live, new, manager=manager, now=NOON, **options))


def with_entries(document, entries):
    return {**document, "metadata": {**document["metadata"], "managedFields": entries}}


def bare(document):
    metadata = {name: value for name, value in document["metadata"].items() if name != "managedFields"}
    return {**document, "metadata": metadata}


def owners(document):
    """Return the owners of fields, by operation and name."""
    return {
        f"{one['operation']} {one['manager']}": one["fieldsV1"]
        for one in document["metadata"]["managedFields"]
    }


def owned(*names):
    return {"f:data": {f"f:{name}": {} for name in names}}


def test_an_apply_creates_and_owns_what_it_names():
    live = applying(None, config({"a": "1"}, labels={"l": "x"}))
    assert bare(live) == config({"a": "1"}, labels={"l": "x"})
    assert live["metadata"]["managedFields"] == [
        {
            "manager": "me",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": NOON,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:a": {}}, "f:metadata": {"f:labels": {"f:l": {}}}},
        }
    ]


def test_an_apply_merges_with_what_others_wrote():
    live = updating(None, config({"a": "1"}), "you")
    live = applying(live, config({"b": "2"}))
    assert live["data"] == {"a": "1", "b": "2"}
    assert owners(live) == {"Apply me": owned("b"), "Update you": {"f:data": {".": {}, "f:a": {}}}}


def test_equal_values_are_shared():
    live = applying(None, config({"a": "1"}), "you")
    live = applying(live, config({"a": "1"}), "me")
    assert owners(live) == {"Apply you": owned("a"), "Apply me": owned("a")}


def test_another_value_is_a_conflict_with_its_owner():
    live = updating(None, config({"a": "1"}), "kubectl-edit")
    with pytest.raises(ApplyConflictError) as lost:
        applying(live, config({"a": "2"}))
    assert lost.value.code == 409
    assert (
        lost.value.message == 'Apply failed with 1 conflict: conflict with "kubectl-edit" using v1: .data.a'
    )
    assert lost.value.conflicts == (('"kubectl-edit" using v1', ".data.a"),)
    assert lost.value.build_causes == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "kubectl-edit" using v1',
            "field": ".data.a",
        }
    ]


def test_several_conflicts_are_grouped_by_owner():
    live = applying(None, config({"a": "1", "b": "1"}), "you")
    live = updating(live, {**bare(live), "data": {"a": "1", "b": "1", "c": "1"}}, "she")
    with pytest.raises(ApplyConflictError) as lost:
        applying(live, config({"a": "2", "b": "2", "c": "2"}))
    assert lost.value.message == (
        'Apply failed with 3 conflicts: conflicts with "she" using v1:\n- .data.c\n'
        'conflicts with "you":\n- .data.a\n- .data.b'
    )


def test_a_conflict_names_the_item_and_the_subresource():
    claims = {"resourceClaimStatuses": [{"name": "g", "resourceClaimName": "x"}]}
    live = {"metadata": {"name": "p"}, "spec": {}}
    live = updating(live, {**live, "status": claims}, "you", POD, subresource="status")
    wanted = {
        "metadata": {"name": "p"},
        "status": {"resourceClaimStatuses": [{"name": "g", "resourceClaimName": "y"}]},
    }
    with pytest.raises(ApplyConflictError) as lost:
        applying(live, wanted, kind=POD, subresource="status")
    assert lost.value.conflicts == (
        (
            '"you" with subresource "status" using v1',
            '.status.resourceClaimStatuses[name="g"].resourceClaimName',
        ),
    )


def test_force_takes_the_field():
    live = updating(None, config({"a": "1", "b": "1"}), "you")
    live = applying(live, config({"a": "2"}), force=True)
    assert live["data"] == {"a": "2", "b": "1"}
    assert owners(live) == {"Apply me": owned("a"), "Update you": {"f:data": {".": {}, "f:b": {}}}}


def test_what_is_no_longer_named_is_removed():
    live = applying(None, config({"a": "1", "b": "2"}, labels={"l": "x"}))
    live = applying(live, config({"a": "1"}), now=LATER)
    assert bare(live) == config({"a": "1"})
    assert owners(live) == {"Apply me": owned("a")}


def test_fields_of_other_owners_stay():
    live = applying(None, config({"a": "1", "b": "2"}), "me")
    live = applying(live, config({"b": "2"}), "you")
    live = applying(live, config({"a": "1"}), "me")
    assert live["data"] == {"a": "1", "b": "2"}
    assert owners(live) == {"Apply me": owned("a"), "Apply you": owned("b")}


def test_fields_without_an_owner_stay():
    live = applying(None, pod({"name": "a", "image": "x"}), kind=POD)
    defaulted = copy.deepcopy(live)
    defaulted["spec"]["dnsPolicy"] = "ClusterFirst"
    defaulted["spec"]["containers"][0]["imagePullPolicy"] = "Always"
    live = applying(defaulted, pod({"name": "a"}), kind=POD)
    assert bare(live) == pod({"name": "a", "imagePullPolicy": "Always"}, dnsPolicy="ClusterFirst")


def test_an_item_is_removed_with_everything_in_it():
    live = applying(None, pod({"name": "a", "image": "x"}, {"name": "b", "image": "y"}), kind=POD)
    live["spec"]["containers"][1]["imagePullPolicy"] = "Always"
    live = applying(live, pod({"name": "a", "image": "x"}), kind=POD)
    assert bare(live) == pod({"name": "a", "image": "x"})


def test_an_item_with_another_owner_stays():
    live = applying(None, pod({"name": "a", "image": "x"}), "me", POD)
    live = applying(live, pod({"name": "a", "tty": True}, {"name": "b"}), "you", POD)
    live = applying(live, pod({"name": "b"}), "me", POD)
    assert live["spec"]["containers"] == [{"name": "a", "tty": True}, {"name": "b"}]


def test_items_keep_the_order_of_the_configuration():
    live = updating(None, pod({"name": "x"}, {"name": "a"}, {"name": "y"}, {"name": "b"}), "you", POD)
    live = applying(live, pod({"name": "b"}, {"name": "n"}, {"name": "a"}), kind=POD)
    assert [one["name"] for one in live["spec"]["containers"]] == ["x", "y", "b", "n", "a"]


@pytest.mark.req("K4816-045")
def test_a_list_owned_as_one_is_replaced():
    def claim(*names):
        choices = [{"name": name, "deviceClassName": "c"} for name in names]
        return {
            "metadata": {"name": "c"},
            "spec": {"devices": {"requests": [{"name": "r", "firstAvailable": choices}]}},
        }

    live = applying(None, claim("big", "small"), kind=CLAIM)
    live = applying(live, claim("tiny"), kind=CLAIM)
    assert live["spec"] == claim("tiny")["spec"]
    with pytest.raises(ApplyConflictError) as lost:
        applying(live, claim("big"), "you", CLAIM)
    assert [path for _, path in lost.value.conflicts] == [".spec.devices.requests"]


def test_finalizers_are_owned_one_by_one():
    live = applying(None, config({}, finalizers=["x/a"]), "you")
    live = applying(live, config({}, finalizers=["x/b"]), "me")
    assert live["metadata"]["finalizers"] == ["x/a", "x/b"]
    live = applying(live, config({}), "me")
    assert live["metadata"]["finalizers"] == ["x/a"]


def test_applying_the_same_again_changes_nothing():
    live = applying(None, config({"a": "1"}))
    assert applying(live, config({"a": "1"}), now=LATER) == live


def test_an_apply_that_changes_something_renews_the_time():
    live = applying(None, config({"a": "1"}))
    live = applying(live, config({"a": "2"}), now=LATER)
    assert [one["time"] for one in live["metadata"]["managedFields"]] == [LATER]


def test_applying_nothing_gives_everything_up():
    live = applying(None, config({"a": "1"}))
    live = applying(live, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})
    assert bare(live) == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    assert live["metadata"]["managedFields"] == []


def test_null_in_a_configuration_is_ignored():
    live = updating(None, config({"a": "1"}), "you")
    live = applying(live, config({"a": None, "b": "2"}, creationTimestamp=None))
    assert bare(live) == config({"a": "1", "b": "2"})
    assert owners(live)["Apply me"] == owned("b")


def test_a_status_applied_through_the_main_resource_is_not_owned():
    live = applying(None, {"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "x"}}, kind=POD)
    assert owners(live) == {"Apply me": {"f:spec": {}}}


REFUSED = {
    "entries of its own": (CONFIG, config({}, managedFields=[]), "metadata.managedFields must be nil"),
    "a list": (CONFIG, [], "is an object"),
    "metadata that are none": (CONFIG, {"metadata": "x"}, "`metadata` of an applied configuration"),
    "one item twice": (
        POD,
        pod({"name": "a"}, {"name": "a"}),
        '.spec.containers: duplicate entries for key [name="a"]',
    ),
    "an item without its key": (
        POD,
        pod({"image": "a"}),
        ".spec.containers[0]: items of this list are identified by `name`",
    ),
    "one finalizer twice": (CONFIG, config({}, finalizers=["a", "a"]), "duplicate entries"),
}


@pytest.mark.parametrize(("kind", "configuration", "words"), REFUSED.values(), ids=REFUSED)
def test_a_configuration_is_refused(kind, configuration, words):
    with pytest.raises(PatchError) as refused:
        apply_configuration(kind, None, configuration, manager="me", force=False, now=NOON)
    assert refused.value.code == 400
    assert words in refused.value.message


def client_side(data, value):
    """A config map as `kubectl apply` without `--server-side` leaves it."""
    text = json.dumps({"data": {"a": value}})
    return updating(None, config(data, annotations={CSA: text}), "kubectl-client-side-apply")


def test_kubectl_may_go_on_where_it_applied_from_the_client():
    live = applying(client_side({"a": "1"}, "1"), config({"a": "2"}), "kubectl")
    assert live["data"] == {"a": "2"}
    assert '"a":"2"' in live["metadata"]["annotations"][CSA]


def test_kubectl_conflicts_with_later_changes_by_others():
    live = client_side({"a": "1"}, "1")
    live = updating(live, {**bare(live), "data": {"a": "5"}}, "you")
    with pytest.raises(ApplyConflictError):
        applying(live, config({"a": "2"}), "kubectl")


def test_others_may_not_take_what_kubectl_applied():
    with pytest.raises(ApplyConflictError):
        applying(client_side({"a": "1"}, "1"), config({"a": "2"}), "me")


def test_others_leave_the_annotation_alone():
    live = client_side({"a": "1"}, "1")
    after = applying(live, config({"b": "2"}), "me")
    assert after["metadata"]["annotations"] == live["metadata"]["annotations"]


def test_kubectl_moves_from_the_client_to_the_server():
    """The three patches of `kubectl apply --server-side` on an object that was applied from the client."""
    live = applying(client_side({"a": "1", "old": "1"}, "1"), config({"a": "2"}), "kubectl", force=True)
    text = live["metadata"]["annotations"][CSA]
    live = applying(live, config({}, annotations={CSA: text}), "kubectl-last-applied")
    mine: dict = {"f:data": {"f:a": {}, "f:old": {}}}
    theirs: dict = {"f:metadata": {"f:annotations": {f"f:{CSA}": {}}}}
    moved = [
        {**entry, "fieldsV1": {"kubectl": mine, "kubectl-last-applied": theirs}[entry["manager"]]}
        for entry in live["metadata"]["managedFields"]
        if entry["operation"] == "Apply"
    ]
    patched = json_patch.apply(live, [{"op": "replace", "path": "/metadata/managedFields", "value": moved}])
    live = updating(live, patched, "kubectl")
    assert owners(live) == {"Apply kubectl": mine, "Apply kubectl-last-applied": theirs}
    live = applying(live, config({"a": "3"}), "kubectl")
    assert live["data"] == {"a": "3"}


def test_an_annotation_that_cannot_be_read_allows_nothing():
    live = updating(None, config({"a": "1"}, annotations={CSA: "{"}), "kubectl-client-side-apply")
    with pytest.raises(ApplyConflictError):
        applying(live, config({"a": "2"}), "kubectl")
