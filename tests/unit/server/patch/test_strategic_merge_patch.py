"""Strategic merge patches merge lists by key, and obey their directives."""

from __future__ import annotations

import copy

import pytest

from dray.server.patch import strategic_merge_patch
from dray.server.patch.errors import PatchError
from tests.unit.server.patch.kinds import BUDGET, CLAIM, CONFIG, DEPLOYMENT, NODE, POD, SERVICE


def pod(**spec):
    return {"spec": spec}


def names(*given):
    return [{"name": name} for name in given]


def condition(kind, status):
    return {"type": kind, "status": status}


MERGED = {
    "a map": (
        CONFIG,
        {"data": {"a": "1", "b": "2"}},
        {"data": {"a": None, "c": "3"}},
        {"data": {"b": "2", "c": "3"}},
    ),
    "an item by key": (
        POD,
        pod(containers=[{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]),
        pod(containers=[{"name": "b", "image": "z"}]),
        pod(containers=[{"name": "a", "image": "x"}, {"name": "b", "image": "z"}]),
    ),
    "a condition": (
        POD,
        {"status": {"conditions": [condition("Ready", "False"), condition("PodScheduled", "False")]}},
        {"status": {"conditions": [condition("PodScheduled", "True") | {"lastProbeTime": None}]}},
        {"status": {"conditions": [condition("Ready", "False"), condition("PodScheduled", "True")]}},
    ),
    "a new item goes first": (
        POD,
        pod(containers=names("a")),
        pod(containers=names("b")),
        pod(containers=names("b", "a")),
    ),
    "a list inside an item": (
        POD,
        pod(containers=[{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}]),
        pod(containers=[{"name": "a", "env": [{"name": "Y", "value": "3"}]}]),
        pod(containers=[{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "3"}]}]),
    ),
    "ports by their first key": (
        SERVICE,
        {"spec": {"ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}},
        {"spec": {"ports": [{"port": 80, "targetPort": 8080}]}},
        {
            "spec": {
                "ports": [
                    {"port": 80, "protocol": "TCP", "targetPort": 8080},
                    {"port": 53, "protocol": "UDP"},
                ]
            }
        },
    ),
    "deleted items": (
        POD,
        pod(containers=names("a", "b", "c")),
        pod(containers=[{"name": "b", "$patch": "delete"}]),
        pod(containers=names("a", "c")),
    ),
    "a replaced list": (
        POD,
        pod(containers=names("a", "b")),
        pod(containers=[{"$patch": "replace"}, {"name": "c"}]),
        pod(containers=names("c")),
    ),
    "a replaced map": (
        CONFIG,
        {"data": {"a": "1"}},
        {"data": {"$patch": "replace", "b": "2"}},
        {"data": {"b": "2"}},
    ),
    "an emptied map": (CONFIG, {"data": {"a": "1"}}, {"data": {"$patch": "delete"}}, {"data": {}}),
    "a merge that says so": (
        CONFIG,
        {"data": {"a": "1"}},
        {"data": {"$patch": "merge", "b": "2"}},
        {"data": {"a": "1", "b": "2"}},
    ),
    "finalizers are added once": (
        CONFIG,
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"finalizers": ["b", "c"]}},
        {"metadata": {"finalizers": ["a", "b", "c"]}},
    ),
    "finalizers are taken away": (
        CONFIG,
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "z"]}},
        {"metadata": {"finalizers": ["b"]}},
    ),
    "an order": (
        POD,
        pod(containers=names("a", "b", "c")),
        pod(**{"$setElementOrder/containers": names("c", "a", "b")}),
        pod(containers=names("c", "a", "b")),
    ),
    "an order with others": (
        POD,
        pod(containers=names("x", "a", "y", "b")),
        pod(**{"$setElementOrder/containers": names("b", "a", "n"), "containers": names("n")}),
        pod(containers=names("x", "y", "b", "a", "n")),
    ),
    "an order of values": (
        CONFIG,
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"$setElementOrder/finalizers": ["b", "a"]}},
        {"metadata": {"finalizers": ["b", "a"]}},
    ),
    "an order of what is not there": (POD, pod(), pod(**{"$setElementOrder/containers": names("a")}), pod()),
    "only these keys": (
        DEPLOYMENT,
        {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}},
        {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
        {"spec": {"strategy": {"type": "Recreate"}}},
    ),
    "another source of a volume": (
        POD,
        pod(volumes=[{"name": "v", "emptyDir": {}}]),
        pod(
            volumes=[
                {
                    "name": "v",
                    "$retainKeys": ["name", "hostPath"],
                    "hostPath": {"path": "/x"},
                    "emptyDir": None,
                }
            ]
        ),
        pod(volumes=[{"name": "v", "hostPath": {"path": "/x"}}]),
    ),
    "taints are replaced": (
        NODE,
        {"spec": {"taints": [{"key": "a"}]}},
        {"spec": {"taints": [{"key": "b"}]}},
        {"spec": {"taints": [{"key": "b"}]}},
    ),
    "tolerations are replaced": (
        POD,
        pod(tolerations=[{"key": "a"}]),
        pod(tolerations=[{"key": "b"}]),
        pod(tolerations=[{"key": "b"}]),
    ),
    "a selector that is replaced": (
        BUDGET,
        {"spec": {"selector": {"matchLabels": {"a": "b"}}}},
        {"spec": {"selector": {"matchLabels": {"c": "d"}}}},
        {"spec": {"selector": {"matchLabels": {"c": "d"}}}},
    ),
    "requests are replaced": (
        CLAIM,
        {"spec": {"devices": {"requests": names("a")}}},
        {"spec": {"devices": {"requests": names("b")}}},
        {"spec": {"devices": {"requests": names("b")}}},
    ),
    "consumers by uid": (
        CLAIM,
        {"status": {"reservedFor": [{"uid": "1", "name": "a"}]}},
        {"status": {"reservedFor": [{"uid": "2", "name": "b"}]}},
        {"status": {"reservedFor": [{"uid": "2", "name": "b"}, {"uid": "1", "name": "a"}]}},
    ),
    "directives in what is new": (
        POD,
        {},
        pod(
            **{
                "$setElementOrder/containers": names("a"),
                "containers": [
                    {"name": "a", "env": None, "$retainKeys": ["name"]},
                    {"name": "b", "$patch": "delete"},
                ],
            }
        ),
        pod(containers=names("a")),
    ),
    "another type": (CONFIG, {"data": "text"}, {"data": {"a": "1"}}, {"data": {"a": "1"}}),
}

REFUSED = {
    "not an object": (POD, {}, [], 400, "JSON object"),
    "an unknown directive": (POD, {}, {"$patch": "explode"}, 400, "unknown patch type `explode`"),
    "an item without its key": (
        POD,
        pod(containers=names("a")),
        pod(containers=[{"image": "x"}]),
        422,
        "merge key `name`",
    ),
    "an order that is none": (
        POD,
        pod(containers=names("a")),
        pod(**{"$setElementOrder/containers": "a"}),
        400,
        "is a list",
    ),
    "two orders": (
        POD,
        pod(containers=names("a", "b")),
        pod(**{"$setElementOrder/containers": names("a", "b"), "containers": names("b", "a")}),
        400,
        "doesn't match",
    ),
    "keys that are none": (POD, pod(), pod(**{"$retainKeys": "x"}), 400, "list of names"),
    "a key not retained": (POD, pod(), pod(**{"$retainKeys": ["a"], "b": 1}), 400, "does not name `b`"),
    "values that are none": (
        POD,
        {},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}},
        400,
        "list of values",
    ),
}


@pytest.mark.parametrize(("kind", "document", "patch", "result"), MERGED.values(), ids=MERGED)
def test_a_patch_is_merged(kind, document, patch, result):
    before = copy.deepcopy((document, patch))
    assert strategic_merge_patch.apply(kind, document, patch) == result
    assert (document, patch) == before


@pytest.mark.parametrize(("kind", "document", "patch", "code", "words"), REFUSED.values(), ids=REFUSED)
def test_a_patch_is_refused(kind, document, patch, code, words):
    # Given a document in which the place is there: what is new is taken as it is.
    with pytest.raises(PatchError) as refused:
        strategic_merge_patch.apply(kind, {"metadata": {}} | document, patch)
    assert refused.value.code == code
    assert words in refused.value.message
