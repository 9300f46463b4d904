"""The command and environment variables of a container."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dray.errors import DrayError
from dray.node.containers.environment import (
    ConfigProblem,
    NodeEnvironment,
    ResolvedContainer,
    expand_variables,
    resolve_container,
)

OBJECTS: dict[tuple[str, str], Mapping[str, Any]] = {
    ("ConfigMap", "settings"): {"data": {"MODEL": "resnet", "a-b.c": "odd", "no=way": "x", "nul": "\0"}},
    ("ConfigMap", "empty"): {},
    ("Secret", "token"): {"data": {"TOKEN": base64.b64encode("s3cret ü".encode()).decode()}},
    ("Secret", "broken"): {"data": {"TOKEN": "***"}},
}


async def lookup(kind: str, name: str) -> Mapping[str, Any] | None:
    if name == "forbidden":
        raise DrayError("you may not read it")
    return OBJECTS.get((kind, name))


def pod(**container: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "train-0",
            "namespace": "ml",
            "uid": "u-1",
            "labels": {"app.kubernetes.io/name": "train"},
            "annotations": {"note": "a 'b' c"},
        },
        "spec": {
            "nodeName": "node-a",
            "serviceAccountName": "robot",
            "containers": [
                {"name": "main", **container},
                {"name": "other", "resources": {"limits": {"cpu": "2"}}},
            ],
        },
        "status": {
            "hostIP": "10.0.0.1",
            "podIP": "10.1.0.1",
            "podIPs": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}],
        },
    }


def work_out(around: NodeEnvironment | None = None, **container: Any) -> ResolvedContainer | ConfigProblem:
    return asyncio.run(resolve_container(pod(**container), "spec.containers[0]", lookup, around))


def env_of(*env: dict[str, Any], around: NodeEnvironment | None = None, **more: Any) -> Mapping[str, str]:
    found = work_out(around, env=list(env), **more)
    assert isinstance(found, ResolvedContainer), found
    return found.env


def value_of(source: dict[str, Any], around: NodeEnvironment | None = None, **more: Any) -> str | None:
    return env_of({"name": "X", "valueFrom": source}, around=around, **more).get("X")


def problem_of(**container: Any) -> ConfigProblem:
    found = work_out(**container)
    assert isinstance(found, ConfigProblem)
    return found


def test_a_container_with_nothing_has_nothing():
    assert work_out() == ResolvedContainer((), (), {}, "")


def test_command_and_arguments_see_every_variable():
    found = work_out(
        command=["run", "$(A)"],
        args=["$(B)-$(NOBODY)", "$$(A)", "$A"],
        env=[{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}],
        workingDir="/data",
    )
    assert found == ResolvedContainer(
        ("run", "1"), ("12-$(NOBODY)", "$(A)", "$A"), {"A": "1", "B": "12"}, "/data"
    )


def test_a_value_sees_only_what_stands_before_it_and_the_last_one_wins():
    env = env_of(
        {"name": "A", "value": "$(B)"},
        {"name": "B", "value": "1"},
        {"name": "B", "value": "$(B)2"},
        {"name": "EMPTY"},
    )
    assert env == {"A": "$(B)", "B": "12", "EMPTY": ""}


def test_variables_of_services_are_there_and_can_be_replaced():
    around = NodeEnvironment(variables={"HOST": "10.0.0.1", "PORT": "443"})
    env = env_of({"name": "URL", "value": "$(HOST):$(PORT)"}, {"name": "PORT", "value": "1"}, around=around)
    assert env == {"HOST": "10.0.0.1", "PORT": "1", "URL": "10.0.0.1:443"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$(VAR)", "v"),
        ("$(VAR)$(VAR)", "vv"),
        ("$$(VAR)", "$(VAR)"),
        ("$$$(VAR)", "$v"),
        ("$$$$(VAR)", "$$(VAR)"),
        ("$(VAR", "$(VAR"),
        ("$", "$"),
        ("$$", "$"),
        ("a$", "a$"),
        ("$VAR", "$VAR"),
        ("$()", "$()"),
        ("$(NO)", "$(NO)"),
        ("$(LOOP)", "$(VAR)"),
        ("$((VAR))", "$((VAR))"),
    ],
)
def test_references(text: str, value: str):
    assert expand_variables(text, {"VAR": "v", "LOOP": "$(VAR)"}) == value


@given(text=some.text(alphabet="$()A x", max_size=20))
def test_law_escaping_keeps_every_text(text: str):
    assert expand_variables(text.replace("$", "$$"), {"A": "value"}) == text


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "train-0"),
        ("metadata.namespace", "ml"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app.kubernetes.io/name']", "train"),
        ("metadata.labels['nobody']", ""),
        ("metadata.annotations['note']", "a 'b' c"),
        ("spec.nodeName", "node-a"),
        ("spec.serviceAccountName", "robot"),
        ("status.hostIP", "10.0.0.1"),
        ("status.podIP", "10.1.0.1"),
        ("status.podIPs", "10.1.0.1,fd00::1"),
        ("status.hostIPs", ""),
    ],
)
def test_fields_of_the_pod(path: str, value: str):
    assert value_of({"fieldRef": {"fieldPath": path}}) == value


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ({"resource": "limits.cpu"}, "3"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "2500"),
        ({"resource": "limits.cpu", "divisor": "0"}, "3"),
        ({"resource": "requests.cpu", "divisor": "1m"}, "500"),
        ({"resource": "requests.memory"}, "1073741824"),
        ({"resource": "limits.memory", "divisor": "1Mi"}, "1024"),
        ({"resource": "limits.ephemeral-storage"}, "7"),
        ({"resource": "requests.ephemeral-storage"}, "0"),
        ({"resource": "limits.cpu", "containerName": "other"}, "2"),
    ],
)
def test_amounts_are_rounded_up_in_units_of_the_divisor(reference: dict[str, str], value: str):
    resources = {"limits": {"cpu": "2500m", "memory": "1Gi"}, "requests": {"cpu": "500m"}}
    around = NodeEnvironment(allocatable={"ephemeral-storage": "7"})
    assert value_of({"resourceFieldRef": reference}, around, resources=resources) == value


def test_entries_of_objects_become_variables():
    env = env_of(
        {"name": "M", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "MODEL"}}},
        {"name": "T", "valueFrom": {"secretKeyRef": {"name": "token", "key": "TOKEN"}}},
        {"name": "BOTH", "value": "$(M)/$(T)"},
    )
    assert env == {"M": "resnet", "T": "s3cret ü", "BOTH": "resnet/s3cret ü"}


def test_whole_objects_come_first_and_odd_keys_are_passed_over():
    env = env_of(
        {"name": "MODEL", "value": "$(MODEL)-50"},
        envFrom=[
            {"configMapRef": {"name": "settings"}},
            {"secretRef": {"name": "token"}, "prefix": "MY_"},
            {"configMapRef": {"name": "empty"}},
            {"configMapRef": {"name": "gone", "optional": True}},
        ],
    )
    assert env == {"MODEL": "resnet-50", "a-b.c": "odd", "MY_TOKEN": "s3cret ü"}


@pytest.mark.parametrize(
    "reference",
    [
        {"configMapKeyRef": {"name": "gone", "key": "A", "optional": True}},
        {"configMapKeyRef": {"name": "settings", "key": "GONE", "optional": True}},
        {"secretKeyRef": {"name": "gone", "key": "A", "optional": True}},
    ],
)
def test_what_is_optional_and_missing_is_no_variable(reference: dict[str, Any]):
    assert value_of(reference) is None


ENV = "spec.containers[0].env[0]"


@pytest.mark.parametrize(
    ("container", "message"),
    [
        (
            {"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "gone", "key": "A"}}}]},
            f"{ENV}.valueFrom.configMapKeyRef.name: there is no ConfigMap `gone` in namespace `ml`",
        ),
        (
            {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "token", "key": "A"}}}]},
            f"{ENV}.valueFrom.secretKeyRef.key: Secret `token` has no key `A`",
        ),
        (
            {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "broken", "key": "TOKEN"}}}]},
            f"{ENV}.valueFrom.secretKeyRef: Secret `broken` holds an entry that is not base64",
        ),
        (
            {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "forbidden", "key": "A"}}}]},
            f"{ENV}.valueFrom.secretKeyRef: cannot read Secret `forbidden`: you may not read it",
        ),
        (
            {"envFrom": [{"configMapRef": {"name": "gone"}}]},
            "spec.containers[0].envFrom[0].configMapRef.name: there is no ConfigMap `gone` in namespace `ml`",
        ),
        (
            {"env": [{"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "limits.gpu"}}}]},
            f"{ENV}.valueFrom.resourceFieldRef.resource: "
            "`limits.gpu` is not limits or requests of a known amount",
        ),
        (
            {
                "env": [
                    {
                        "name": "X",
                        "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "containerName": "no"}},
                    }
                ]
            },
            f"{ENV}.valueFrom.resourceFieldRef.containerName: the pod has no container `no`",
        ),
        (
            {"env": [{"name": "X", "value": "a\0b"}]},
            f"{ENV}: contains a zero byte, which no command or variable may",
        ),
        (
            {"command": ["a\0b"]},
            "spec.containers[0].command[0]: contains a zero byte, which no command or variable may",
        ),
    ],
)
def test_a_problem_names_the_field(container: dict[str, Any], message: str):
    assert problem_of(**container).message == message


@pytest.mark.parametrize(
    "path", ["metadata.ownerReferences", "spec", "", "metadata.labels", "metadata.labels['a'"]
)
def test_a_field_that_a_variable_cannot_have(path: str):
    problem = problem_of(env=[{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}])
    assert problem.path == f"{ENV}.valueFrom.fieldRef.fieldPath"
    assert problem.detail.startswith(
        f"`{path}` is no field that a variable can refer to; expected one of metadata.name"
    )


def test_a_source_of_no_kind():
    problem = problem_of(env=[{"name": "X", "valueFrom": {"fileKeyRef": {"path": "x"}}}])
    assert problem.message.startswith(f"{ENV}.valueFrom: expected one of fieldRef")


def test_an_object_is_looked_up_once():
    asked: list[str] = []

    async def counted(kind: str, name: str) -> Mapping[str, Any] | None:
        asked.append(name)
        return await lookup(kind, name)

    reference = {"configMapKeyRef": {"name": "settings", "key": "MODEL"}}
    document = pod(env=[{"name": f"X{n}", "valueFrom": reference} for n in range(5)])
    found = asyncio.run(resolve_container(document, "spec.containers[0]", counted))
    assert isinstance(found, ResolvedContainer)
    assert asked == ["settings"]


def test_init_containers_are_worked_out_too():
    document = pod()
    document["spec"]["initContainers"] = [{"name": "init", "command": ["prepare"]}]
    found = asyncio.run(resolve_container(document, "spec.initContainers[0]", lookup))
    assert found == ResolvedContainer(("prepare",), (), {}, "")
