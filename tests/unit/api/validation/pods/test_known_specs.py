"""Known specs: a cached result is the result of the rules, for every pod."""

from __future__ import annotations

import pytest

from dray.api.kinds import get_kind
from dray.api.validation import collect_pod_warnings, pod_warnings, validate_new_document
from dray.api.validation.pods import create
from dray.api.validation.validation_cache import ValidValueCache
from tests.unit.api.validation.pods.pod_cases import Document, build_pod, load_new_pods

POD = get_kind("", "Pod")
PODS: list[Document] = [
    *(case.pod for case in load_new_pods()),
    *(build_pod(name, annotations=notes) for name in ("a", "A") for notes in (None, {"x": ""}, {"-": ""})),
    build_pod("a" * 63, spec={"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]}),
    build_pod("a" * 253, spec={"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]}),
    build_pod(container={"ports": [{"containerPort": 80}, {"containerPort": 80}]}),
    build_pod(spec={"nodeSelector": {"beta.kubernetes.io/arch": "arm"}}),
    build_pod(spec={"schedulingGates": [{"name": "g"}], "nodeName": "n"}),
]


@pytest.fixture(autouse=True)
def empty_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_caches(monkeypatch)


def clear_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create, "VALID_SPECS", ValidValueCache[bytes](create.VALID_SPECS_BOUND))
    monkeypatch.setattr(pod_warnings, "_spec_warnings", {})


def judge(pod: Document) -> tuple[list[str], list[str]]:
    errors = [str(error) for error in validate_new_document(POD, pod)]
    return errors, [] if errors else [str(warning) for warning in collect_pod_warnings(POD, pod)]


def test_a_known_spec_has_the_errors_and_warnings_of_an_unknown_one(monkeypatch):
    unknown = []
    for pod in PODS:
        with monkeypatch.context() as patch:
            clear_caches(patch)
            unknown.append(judge(pod))
    for _ in range(2):
        assert [judge(pod) for pod in PODS] == unknown
    assert len(create.VALID_SPECS) > 10
    assert any(warnings for _, warnings in unknown)


def test_only_valid_and_short_specs_are_remembered():
    judge(build_pod(container={"image": ""}))
    judge(build_pod(container={"image": "i" * create.MAX_CACHED_SPEC_BYTES}))
    assert len(create.VALID_SPECS) == 0
    judge(build_pod())
    judge(build_pod("other"))
    assert len(create.VALID_SPECS) == 1
