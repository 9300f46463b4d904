"""Field ownership after creates, updates and patches."""

from __future__ import annotations

import copy

import pytest

from dray.server.patch.managed_fields.field_ownership import update_managed_fields
from tests.unit.server.patch.kinds import CLAIM, CONFIG, DEPLOYMENT, NODE, POD, SLICE

NOON, LATER = "2026-01-01T12:00:00Z", "2026-01-01T13:00:00Z"


def config(data, **metadata):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", **metadata}, "data": data}


def entry(manager, fields, **more):
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": NOON,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **more,
    }


def owned(*names):
    return {"f:data": {f"f:{name}": {} for name in names}}


def stored(data, *entries):
    return config(data, managedFields=list(entries))


def after(old, new, manager="me", now=LATER, kind=CONFIG, subresource=""):
    before = copy.deepcopy((old, new))
    result = update_managed_fields(kind, old, new, manager=manager, now=now, subresource=subresource)
    assert (old, new) == before
    return result


def test_the_creator_owns_everything_but_fields_of_the_server():
    new = config(
        {"a": "1"},
        namespace="n",
        uid="u",
        resourceVersion="1",
        creationTimestamp=NOON,
        generation=1,
        selfLink="/x",
        deletionTimestamp=NOON,
        deletionGracePeriodSeconds=0,
        labels={"l": "x"},
        generateName="c-",
    )
    assert after(None, new, now=NOON) == [
        entry(
            "me",
            {
                "f:data": {".": {}, "f:a": {}},
                "f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:l": {}}},
            },
        )
    ]


def test_parts_that_are_always_there_have_no_owner():
    new = {
        "metadata": {},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {
                    "containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}],
                    "securityContext": {},
                },
            },
        },
        "status": {},
    }
    (written,) = after(None, new, kind=DEPLOYMENT)
    container: dict = {
        ".": {},
        "f:name": {},
        "f:resources": {".": {}, "f:limits": {".": {}, "f:cpu": {}}},
    }
    assert written["fieldsV1"] == {
        "f:spec": {
            "f:selector": {},
            "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}, "f:type": {}},
            "f:template": {
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                "f:spec": {"f:containers": {'k:{"name":"a"}': container}, "f:securityContext": {}},
            },
        }
    }


def test_an_object_without_anything_of_its_own_has_no_entries():
    assert after(None, {"metadata": {"name": "x"}, "spec": {}, "status": {}}, kind=CLAIM) == []


def test_a_changed_field_changes_its_owner():
    old = stored({"a": "1", "b": "2"}, entry("you", owned("a", "b")))
    assert after(old, config({"a": "9", "b": "2", "c": "3"})) == [
        entry("you", owned("b")),
        entry("me", owned("a", "c"), time=LATER),
    ]


def test_a_manager_without_fields_has_no_entry():
    old = stored({"a": "1"}, entry("you", owned("a")))
    assert after(old, config({"a": "2"})) == [entry("me", owned("a"), time=LATER)]


def test_a_removed_field_has_no_owner():
    old = stored({"a": "1", "b": "2"}, entry("me", owned("a")), entry("you", owned("b")))
    assert after(old, config({"a": "1"})) == [entry("me", owned("a"))]


def test_a_write_that_changes_nothing_changes_no_entry():
    old = stored({"a": "1"}, entry("you", owned("a")))
    assert after(old, config({"a": "1"})) == old["metadata"]["managedFields"]
    assert after(old, copy.deepcopy(old)) == old["metadata"]["managedFields"]


def test_the_same_writer_has_one_entry_per_subresource():
    old = stored({"a": "1"}, entry("me", owned("a")), entry("me", owned("b"), subresource="scale"))
    assert after(old, config({"a": "1", "c": "1"})) == [
        entry("me", owned("b"), subresource="scale"),
        entry("me", owned("a", "c"), time=LATER),
    ]


def test_an_applied_entry_is_another_writer():
    old = stored({"a": "1", "b": "1"}, entry("me", owned("a", "b"), operation="Apply"))
    assert after(old, config({"a": "2", "b": "1"})) == [
        entry("me", owned("b"), operation="Apply"),
        entry("me", owned("a"), time=LATER),
    ]


def test_an_update_in_another_version_is_another_entry():
    old = stored({"a": "1", "b": "1"}, entry("me", owned("a"), apiVersion="v1beta1"))
    assert after(old, config({"a": "1", "b": "2"})) == [
        entry("me", owned("a"), apiVersion="v1beta1"),
        entry("me", owned("b"), time=LATER),
    ]


def test_entries_are_ordered_by_operation_time_and_name():
    old = stored(
        {"a": "1"},
        entry("z", owned("x"), operation="Apply", time=LATER),
        entry("c", owned("y"), time=LATER),
        entry("a", owned("z"), time=LATER),
    )
    assert [one["manager"] for one in after(old, config({"a": "2"}), "b")] == ["z", "a", "b", "c"]


def test_a_status_is_owned_through_its_subresource():
    old: dict = {"metadata": {}, "spec": {"devices": {}}}
    new = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"devices": {"requests": [{"name": "a"}]}},
        "status": {"reservedFor": [{"uid": "u", "name": "p", "resource": "pods"}]},
    }
    (main,) = after(old, new, kind=CLAIM)
    (status,) = after(old, new, kind=CLAIM, subresource="status")
    assert main["fieldsV1"] == {
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:spec": {"f:devices": {"f:requests": {}}},
    }
    item: dict = {".": {}, "f:name": {}, "f:resource": {}, "f:uid": {}}
    assert status["fieldsV1"] == {"f:status": {"f:reservedFor": {".": {}, 'k:{"uid":"u"}': item}}}
    assert "subresource" not in main
    assert status["subresource"] == "status"


def test_a_node_may_be_labelled_through_its_status():
    new = {"metadata": {"labels": {"a": "b"}}, "spec": {"unschedulable": True}, "status": {"phase": "x"}}
    (written,) = after({"metadata": {}}, new, kind=NODE, subresource="status")
    assert written["fieldsV1"] == {
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:status": {"f:phase": {}},
    }


def test_a_list_owned_as_one_is_owned_as_one():
    old = {"metadata": {}, "spec": {"devices": [{"name": "a"}], "pool": {"generation": 1}}}
    new = {"metadata": {}, "spec": {"devices": [{"name": "b"}], "pool": {"generation": 2}}}
    (written,) = after(old, new, kind=SLICE)
    assert written["fieldsV1"] == {"f:spec": {"f:devices": {}, "f:pool": {"f:generation": {}}}}


def test_one_item_of_a_list_changes_its_owner_alone():
    ready, live = {"type": "Ready", "status": "True"}, {"type": "Live", "status": "True"}
    old = {"metadata": {}, "status": {"conditions": [ready, live]}}
    new = {"metadata": {}, "status": {"conditions": [live, {**ready, "status": "False"}]}}
    (written,) = after(old, new, kind=POD, subresource="status")
    assert written["fieldsV1"] == {"f:status": {"f:conditions": {'k:{"type":"Ready"}': {"f:status": {}}}}}


def test_items_without_distinct_keys_are_owned_as_one():
    old = {"metadata": {}, "spec": {"containers": [{"name": "a"}, {"name": "a"}]}}
    new = {"metadata": {}, "spec": {"containers": [{"name": "a"}, {"name": "a", "image": "x"}]}}
    (written,) = after(old, new, kind=POD)
    assert written["fieldsV1"] == {"f:spec": {"f:containers": {}}}


def test_a_map_that_becomes_a_text_leaves_no_owner_below():
    old = {
        "metadata": {"managedFields": [entry("you", {"f:x": {".": {}, "f:a": {}}})]},
        "x": {"a": 1},
    }
    (written,) = after(old, {"metadata": {}, "x": "text"})
    assert (written["manager"], written["fieldsV1"]) == ("me", {"f:x": {}})


@pytest.mark.parametrize("sent", [[], [{}]])
def test_a_client_may_forget_all_entries(sent):
    old = stored({"a": "1"}, entry("you", owned("a")))
    assert after(old, config({"a": "1"}, managedFields=sent)) == []
    assert after(old, config({"a": "1", "b": "2"}, managedFields=sent)) == [
        entry("me", owned("b"), time=LATER)
    ]


def test_a_client_may_transfer_fields():
    old = stored({"a": "1"}, entry("kubectl-client-side-apply", owned("a")))
    handed = [entry("kubectl", {"f:data": {"f:a": {".": {}}}}, operation="Apply")]
    assert after(old, config({"a": "1"}, managedFields=handed)) == [
        entry("kubectl", owned("a"), operation="Apply")
    ]


@pytest.mark.parametrize(
    "sent",
    [
        None,
        "x",
        [7],
        [entry("x", {"a": {}})],
        [entry("x", owned("a"), operation="Guess")],
        [entry("x", owned("a"), time=7)],
    ],
)
def test_entries_that_cannot_be_read_change_nothing(sent):
    old = stored({"a": "1"}, entry("you", owned("a")))
    assert after(old, config({"a": "1"}, managedFields=sent)) == old["metadata"]["managedFields"]


def test_entries_sent_through_a_subresource_change_nothing():
    old = stored({"a": "1"}, entry("you", owned("a")))
    assert (
        after(old, config({"a": "1"}, managedFields=[]), subresource="status")
        == old["metadata"]["managedFields"]
    )


def test_the_oldest_of_many_writers_are_joined():
    writers = [entry(f"w{n}", owned(f"k{n}"), time=f"2026-01-01T12:00:{n:02}Z") for n in range(10)]
    old = stored({f"k{n}": "1" for n in range(10)}, *writers)
    new = config({**old["data"], "mine": "1"})
    result = after(old, new)
    assert len(result) == 10
    assert result[0] == entry("ancient-changes", owned("k0", "k1"), time="2026-01-01T12:00:01Z")
    assert [one["manager"] for one in result[1:]] == [*(f"w{n}" for n in range(2, 10)), "me"]


def test_appliers_are_not_joined():
    writers = [entry(f"w{n}", owned(f"k{n}"), operation="Apply") for n in range(12)]
    assert len(after(stored({}, *writers), config({"mine": "1"}))) == 13
