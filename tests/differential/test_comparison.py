"""The comparison finds every difference, and rules explain only what they are about."""

from __future__ import annotations

from tests.contract.documents import Document, allocation, claim, pod
from tests.differential.cluster_side import build_picture
from tests.differential.comparison import MISSING, RULES, compare, find_differences
from tests.differential.scenario import Scenario, Step, load_case_scenarios, load_own_scenarios

EMPTY = Scenario("empty", (), (Step(),))
TIED = Scenario("tied", (), (Step(),), has_ties=True)


def test_fields_are_compared_one_by_one() -> None:
    left = {"a": 1, "b": {"c": [1, 2]}, "only": "x"}
    right = {"a": 2, "b": {"c": [1, 3]}}
    found = [(".".join(each.path), each.left, each.right) for each in find_differences((), left, right)]
    assert found == [("a", 1, 2), ("b.c.1", 2, 3), ("only", "x", MISSING)]


def test_lists_of_other_lengths_differ_as_a_whole() -> None:
    (difference,) = find_differences((), {"devices": [1]}, {"devices": [1, 2]})
    assert difference.path == ("devices",)


def test_a_finalizer_is_decided_and_a_device_is_wrong() -> None:
    left = [{"claims": {"one": {"device": "gpu-0"}}}]
    right = [{"claims": {"one": {"device": "gpu-1", "finalizers": ["x"]}}}]
    result = compare(EMPTY, left, right)
    assert [name for name, _ in result.decided] == ["finalizer"]
    assert [each.path[-1] for each in result.wrong] == ["device"]


def test_a_step_that_only_one_cluster_reached_is_wrong() -> None:
    (difference,) = compare(EMPTY, [{"pods": {}}], [{"pods": {}}, {"stuck": ["Pod a"]}]).wrong
    assert (difference.path, difference.left) == (("1",), MISSING)


def test_a_field_without_content_may_be_left_out() -> None:
    left = [{"spec": {"devices": {"requests": None}}}]
    right: list[dict[str, object]] = [{}]
    assert [name for name, _ in compare(EMPTY, left, right).decided] == ["empty"]
    assert compare(EMPTY, [{"spec": {"devices": {"requests": ["x"]}}}], right).wrong


def test_a_scenario_names_the_rule_of_the_difference_that_it_shows() -> None:
    shown = Scenario("shown", (), (Step(),), decided="stricter")
    (decided,) = compare(shown, [{"refused": 422}], [{"pods": {}}]).decided[:1]
    assert decided[0] == "stricter"
    names = {rule.name for rule in RULES}
    assert {each.decided for each in load_own_scenarios()} - {""} <= names


def test_another_node_is_decided_only_for_ties() -> None:
    left, right = [{"pods": {"p": {"node": "a"}}}], [{"pods": {"p": {"node": "b"}}}]
    assert compare(EMPTY, left, right).wrong
    assert not compare(TIED, left, right).wrong
    assert compare(TIED, left, [{"pods": {"p": {"node": ""}}}]).wrong, "one of them is not scheduled"


def test_a_picture_has_no_generated_values() -> None:
    def build(uid: str, name: str, time: str) -> Document:
        asking = pod("first", uid=uid)
        owner = {"kind": "Pod", "name": "first", "uid": uid}
        entry = {"resource.kubernetes.io/pod-claim-name": "gpu"}
        made = claim(name, uid=f"{uid}-claim", ownerReferences=[owner], annotations=entry)
        reserved = [{"resource": "pods", "name": "first", "uid": uid}]
        made["status"] = {
            "allocation": {**allocation(), "allocationTimestamp": time},
            "reservedFor": reserved,
        }
        return build_picture([asking], [made])

    one = build("u-1", "first-gpu-abcde", "2026-01-01T00:00:00Z")
    assert one == build("u-2", "first-gpu-fghij", "2026-01-02T00:00:00Z")
    assert one["claims"]["first/gpu"]["status"]["allocation"]["allocationTimestamp"] == "set"


def test_scenarios_have_names_of_their_own() -> None:
    names = [each.name for each in load_own_scenarios()]
    assert len(names) == len(set(names))
    assert len(list(load_case_scenarios())) > 150
