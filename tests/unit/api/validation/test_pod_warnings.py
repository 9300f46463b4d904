"""Warnings about pods and pod templates, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.kinds import get_kind
from dray.api.messages.object_types import find_object_type
from dray.api.validation import collect_pod_warnings
from dray.api.validation.deprecations import NODE_LABELS, POD_ANNOTATIONS, VOLUME_SOURCES
from dray.api.validation.pod_warnings import TEMPLATE_PATHS

POD = get_kind("", "Pod")
ZONE = "failure-domain.beta.kubernetes.io/zone"
EXPRESSIONS = [{"key": ZONE, "operator": "In", "values": ["a b"]}]
TERM = {"matchExpressions": EXPRESSIONS}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def container(name: str = "a", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "i", **fields}


def spec(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [container()], **fields}}


def annotated(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"annotations": {name: "x"}}, **spec(**fields)}


def ports(*given: dict[str, Any]) -> dict[str, Any]:
    return spec(containers=[container(ports=list(given))])


PROFILE = {"type": "RuntimeDefault"}
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an ordinary pod": (spec(nodeSelector={"kubernetes.io/arch": "arm64"}), []),
    "an old node label": (
        spec(nodeSelector={"beta.kubernetes.io/arch": "arm64"}),
        ["spec.nodeSelector[beta.kubernetes.io/arch]"],
    ),
    "an old node label in an affinity": (
        spec(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [TERM]}}}),
        [f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].key"],
    ),
    "an old node label and an impossible value in a preference": (
        spec(affinity={"nodeAffinity": {PREFERRED: [{"preference": {"matchExpressions": EXPRESSIONS}}]}}),
        [
            f"spec.affinity.nodeAffinity.{PREFERRED}[0].preference.matchExpressions[0].key",
            f"spec.affinity.nodeAffinity.{PREFERRED}[0].preference.matchExpressions[0].values[0]",
        ],
    ),
    "a spread over an old node label, of no pod": (
        spec(topologySpreadConstraints=[{"topologyKey": ZONE}]),
        ["spec.topologySpreadConstraints[0].topologyKey", "spec.topologySpreadConstraints[0].labelSelector"],
    ),
    "an affinity to no pod": (
        spec(affinity={"podAffinity": {REQUIRED: [{"topologyKey": "a"}, {"labelSelector": {}}]}}),
        [f"spec.affinity.podAffinity.{REQUIRED}[0].labelSelector"],
    ),
    "a preference for no pod": (
        spec(affinity={"podAntiAffinity": {PREFERRED: [{"podAffinityTerm": {"topologyKey": "a"}}]}}),
        [f"spec.affinity.podAntiAffinity.{PREFERRED}[0].podAffinityTerm.labelSelector"],
    ),
    "seccomp by annotation": (
        annotated("seccomp.security.alpha.kubernetes.io/pod"),
        ["metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]"],
    ),
    "seccomp by annotation and field": (
        annotated("seccomp.security.alpha.kubernetes.io/pod", securityContext={"seccompProfile": PROFILE}),
        [],
    ),
    "seccomp of a container by annotation": (
        annotated("container.seccomp.security.alpha.kubernetes.io/a"),
        ["metadata.annotations[container.seccomp.security.alpha.kubernetes.io/a]"],
    ),
    "AppArmor by annotation": (
        annotated("container.apparmor.security.beta.kubernetes.io/a"),
        ["metadata.annotations[container.apparmor.security.beta.kubernetes.io/a]"],
    ),
    "AppArmor by annotation and field": (
        annotated(
            "container.apparmor.security.beta.kubernetes.io/a",
            containers=[container(securityContext={"appArmorProfile": PROFILE})],
        ),
        [],
    ),
    "repeated entries": (
        spec(hostAliases=[{"ip": "1.1.1.1"}] * 2, imagePullSecrets=[{"name": "a"}, {"name": "a"}, {}]),
        ["spec.hostAliases[1].ip", "spec.imagePullSecrets[1].name", "spec.imagePullSecrets[2].name"],
    ),
    "a part of a byte": (
        spec(
            overhead={"memory": "100m"},
            containers=[container(resources={"limits": {"memory": "1500m"}, "requests": {"cpu": "100m"}})],
        ),
        ["spec.overhead[memory]", "spec.containers[0].resources.limits[memory]"],
    ),
    "whole bytes": (spec(overhead={"memory": "2000m", "ephemeral-storage": "1Gi"}), []),
    "a variable that hides another": (
        spec(containers=[container(env=[{"name": "A"}, {"name": "A", "value": "b"}])]),
        ["spec.containers[0].env[1]"],
    ),
    "a variable that extends another": (
        spec(containers=[container(env=[{"name": "A"}, {"name": "A", "value": "$(A)b"}])]),
        [],
    ),
    "the same port": (ports({"containerPort": 1}, {"containerPort": 1}), ["spec.containers[0].ports[1]"]),
    "the same port of another protocol": (
        ports({"containerPort": 1}, {"containerPort": 1, "protocol": "UDP"}),
        [],
    ),
    "a port with and without a port of the host": (
        ports({"containerPort": 1}, {"containerPort": 1, "hostPort": 2}),
        ["spec.containers[0].ports[1]"],
    ),
    "one port of the host on one address and on all": (
        ports({"containerPort": 1, "hostPort": 2}, {"containerPort": 1, "hostPort": 2, "hostIP": "1.1.1.1"}),
        ["spec.containers[0].ports[1]"],
    ),
    "an address without a port of the host": (
        ports({"containerPort": 1, "hostIP": "1.1.1.1"}),
        ["spec.containers[0].ports[0]"],
    ),
    "two ports of one name": (
        ports({"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}),
        ["spec.containers[0].ports[1]"],
    ),
    "a negative grace period": (
        spec(terminationGracePeriodSeconds=-1),
        ["spec.terminationGracePeriodSeconds"],
    ),
}


@pytest.mark.parametrize(("pod", "expected"), CASES.values(), ids=CASES)
def test_a_pod_gets_its_warnings(pod: dict[str, Any], expected: list[str]) -> None:
    assert [warning.path for warning in collect_pod_warnings(POD, pod)] == expected


@pytest.mark.parametrize(("group", "name"), TEMPLATE_PATHS)
def test_the_warnings_about_a_template_name_its_place(group: str, name: str) -> None:
    kind, steps = get_kind(group, name), TEMPLATE_PATHS[group, name]
    document: dict[str, Any] = spec(nodeSelector={ZONE: "a"})
    for step in reversed(steps):
        document = {step: document}
    (warning,) = collect_pod_warnings(kind, document)
    place = ".".join((*steps, "spec.nodeSelector"))
    assert str(warning) == f"{place}[{ZONE}]: {NODE_LABELS[ZONE]}"
    object_type = find_object_type(kind.internal_api_version, name)
    assert object_type is not None
    assert collect_pod_warnings(kind, {}) == []


@pytest.mark.parametrize("name", POD_ANNOTATIONS)
def test_an_annotation_without_effect_is_named(name: str) -> None:
    assert [str(warning) for warning in collect_pod_warnings(POD, annotated(name))] == [
        f"metadata.annotations[{name}]: {POD_ANNOTATIONS[name]}"
    ]


@pytest.mark.parametrize("source", VOLUME_SOURCES)
def test_a_volume_that_no_longer_works_is_named(source: str) -> None:
    pod = spec(volumes=[{"name": "a", "emptyDir": {}}, {"name": "b", source: {}}])
    assert [str(warning) for warning in collect_pod_warnings(POD, pod)] == [
        f"spec.volumes[1].{source}: {VOLUME_SOURCES[source]}"
    ]


def test_other_kinds_have_no_pods() -> None:
    assert collect_pod_warnings(get_kind("", "ConfigMap"), spec(nodeSelector={ZONE: "a"})) == []
