"""Pods through the API: priority, and which fields can change."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.api import MERGE, Api, path, serving
from tests.contract.documents import pod
from tests.contract.hooked import CONFIG_RULE, hooked, patched


def _class(name: str, value: int, **more: Any) -> dict[str, Any]:
    row = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    return {**row, "value": value, **more}


CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def _pod(name: str, **spec: Any) -> dict[str, Any]:
    made = pod(name)
    made["spec"].update(spec)
    return made


async def _rank(api: Api, made: dict[str, Any]) -> tuple[int, str | None]:
    spec = (await api.create(made))["spec"]
    return spec["priority"], spec.get("priorityClassName")


async def test_a_pod_gets_the_priority_of_its_class() -> None:
    async with serving() as api:
        await api.create(_class("high", 1000, preemptionPolicy="Never"), CLASSES)
        assert await _rank(api, _pod("a", priorityClassName="high")) == (1000, "high")
        assert (await api.get(path("pods", "a")))["spec"]["preemptionPolicy"] == "Never"
        assert await _rank(api, _pod("b")) == (0, None)
        assert await _rank(api, _pod("c", priority=0)) == (0, None)
        vital = "system-node-critical"
        assert await _rank(api, _pod("d", priorityClassName=vital)) == (2_000_001_000, vital)
        await api.create(_class("usual", 5, globalDefault=True), CLASSES)
        assert await _rank(api, _pod("e")) == (5, "usual")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"priorityClassName": "absent"}, "no PriorityClass with name absent was found"),
        (
            {"priorityClassName": "high", "priority": 3},
            "the integer value of priority (3) must not be provided in pod spec; "
            "priority admission controller computed 1000 from the given PriorityClass name",
        ),
        (
            {"priority": 7},
            "the integer value of priority (7) must not be provided in pod spec; "
            "priority admission controller computed 0 from the given PriorityClass name",
        ),
        (
            {"preemptionPolicy": "Never"},
            "the string value of PreemptionPolicy (Never) must not be provided in pod spec; "
            "priority admission controller computed PreemptLowerPriority from the given PriorityClass name",
        ),
    ],
)
async def test_a_pod_with_an_unknown_class_or_another_priority_is_refused(
    spec: dict[str, Any], why: str
) -> None:
    async with serving() as api:
        await api.create(_class("high", 1000), CLASSES)
        answer = await api.ask("POST", path("pods"), _pod("a", **spec))
        assert answer.code == 403
        assert why in answer.message


async def test_an_update_may_leave_the_priority_out() -> None:
    async with serving() as api:
        await api.create(_class("high", 1000), CLASSES)
        made = await api.create(_pod("a", priorityClassName="high"))
        del made["spec"]["priority"]
        made["metadata"]["labels"] = {"new": "label"}
        await api.put(made, path("pods", "a"))
        assert (await api.get(path("pods", "a")))["spec"]["priority"] == 1000


async def test_scheduling_gates_can_be_removed_and_not_added() -> None:
    async with serving() as api:
        gates = [{"name": "example.com/a"}, {"name": "example.com/b"}]
        await api.create(_pod("p", schedulingGates=gates))
        place = path("pods", "p")
        more = {"spec": {"schedulingGates": [*gates, {"name": "example.com/c"}]}}
        answer = await api.ask("PATCH", place, more, headers={"content-type": MERGE})
        assert answer.code == 422
        assert "gates may only be removed, and `example.com/c` is new" in answer.message
        await api.patch(place, {"spec": {"schedulingGates": gates[1:]}})
        assert (await api.get(place))["spec"]["schedulingGates"] == gates[1:]


async def test_a_mutating_webhook_sees_a_pod_with_defaults_and_what_it_adds_gets_them() -> None:
    limits = {"limits": {"cpu": "1", "memory": "1Gi"}}
    side = {"name": "side", "image": "side:1", "resources": limits}
    given = _pod("p")
    given["spec"]["containers"][0]["resources"] = limits
    async with hooked() as world:
        world.hook.on(
            "/add", lambda _asked: patched({"op": "add", "path": "/spec/containers/-", "value": side})
        )
        pods = {**CONFIG_RULE, "resources": ["pods"]}
        await world.configure("mutating", "c", world.entry("/add", rules=[pods]))
        made = await world.api.create(given)
        (asked,) = world.hook.requests("/add")
    assert asked["object"]["spec"]["terminationGracePeriodSeconds"] == 30
    assert asked["object"]["spec"]["containers"][0]["resources"]["requests"] == limits["limits"]
    (_, added) = made["spec"]["containers"]
    assert (added["terminationMessagePolicy"], added["resources"]["requests"]) == ("File", limits["limits"])
    assert made["status"] == {"phase": "Pending", "qosClass": "Guaranteed"}
