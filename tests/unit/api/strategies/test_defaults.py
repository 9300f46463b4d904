"""Default values of every kind."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api import classic, codec
from dray.api.kinds import KINDS
from dray.api.strategies.defaults import DEFAULTS, NOW, apply_defaults
from tests.fieldtree import fields_of

ARRIVAL = "2026-01-31T12:00:00Z"
ROWS = [(cls, row) for cls, rows in DEFAULTS.items() for row in rows]


def filled(document: dict[str, Any]) -> dict[str, Any]:
    return codec.to_document(apply_defaults(codec.decode_document(document).object, now=ARRIVAL))


def claim(*requests: dict[str, Any], kind: str = "ResourceClaim") -> dict[str, Any]:
    spec = {"devices": {"requests": list(requests)}}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "c"}}
    return {**head, "spec": {"spec": spec} if kind == "ResourceClaimTemplate" else spec}


def request(kind: str, ask: dict[str, Any]) -> dict[str, Any]:
    if kind == "exactly":
        return {"name": "a", "exactly": {"deviceClassName": "gpu", **ask}}
    return {"name": "a", "firstAvailable": [{"name": "s", "deviceClassName": "gpu", **ask}]}


@pytest.mark.parametrize(("cls", "row"), ROWS, ids=lambda item: getattr(item, "field", None))
def test_a_row_names_a_field_that_exists(cls, row):
    assert cls in {kind.type for kind in KINDS if not kind.open}
    assert row.field in fields_of(cls)
    assert row.about


@pytest.mark.req("K4816-026", "K4816-027")
@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_a_request_asks_for_exactly_one_device(kind):
    given = claim(request("exactly", {}), kind=kind)
    assert filled(given) == claim(request("exactly", {"allocationMode": "ExactCount", "count": 1}), kind=kind)


@pytest.mark.req("K4816-038")
@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_an_alternative_asks_for_exactly_one_device(kind):
    given = claim(request("firstAvailable", {}), kind=kind)
    assert filled(given) == claim(
        request("firstAvailable", {"allocationMode": "ExactCount", "count": 1}), kind=kind
    )


@pytest.mark.parametrize("ask", ["exactly", "firstAvailable"])
@pytest.mark.parametrize(
    "said",
    [
        {"allocationMode": "ExactCount", "count": 3},
        {"allocationMode": "All"},
        {"allocationMode": "All", "count": 3},
        {"allocationMode": "Some"},
        {"allocationMode": "ExactCount", "count": -1},
    ],
    ids=str,
)
def test_fields_that_are_set_stay(ask, said):
    given = claim(request(ask, said))
    assert filled(given) == given


@pytest.mark.parametrize("ask", ["exactly", "firstAvailable"])
def test_a_count_alone_means_exactly_that_many(ask):
    assert filled(claim(request(ask, {"count": 3}))) == claim(
        request(ask, {"count": 3, "allocationMode": "ExactCount"})
    )


@pytest.mark.parametrize("ask", ["exactly", "firstAvailable"])
def test_a_toleration_compares_for_equality(ask):
    mode = {"allocationMode": "All"}
    given = {"tolerations": [{"key": "a"}, {"operator": "Exists"}, {"operator": "Other"}], **mode}
    expected = {
        "tolerations": [{"key": "a", "operator": "Equal"}, {"operator": "Exists"}, {"operator": "Other"}],
        **mode,
    }
    assert filled(claim(request(ask, given))) == claim(request(ask, expected))


def test_tolerations_in_a_result_compare_for_equality_too():
    def with_result(**toleration: str) -> dict[str, Any]:
        results = [{"request": "a", "device": "gpu-0", "tolerations": [{"key": "a", **toleration}]}]
        return {**claim(), "status": {"allocation": {"devices": {"results": results}}}}

    assert filled(with_result()) == filled(with_result(operator="Equal"))
    assert filled(with_result(operator="Exists")) != filled(with_result())


def test_a_taint_gets_the_time_of_its_arrival():
    def with_taints(*taints: dict[str, Any]) -> dict[str, Any]:
        devices = [{"name": "a"}, {"name": "b", "taints": list(taints)}]
        head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}}
        pool = {"name": "p", "generation": 0, "resourceSliceCount": 0}
        return {**head, "spec": {"driver": "d", "pool": pool, "devices": devices}}

    old = {"key": "a", "timeAdded": "2020-01-01T00:00:00Z"}
    assert filled(with_taints(old, {"key": "b"})) == with_taints(old, {"key": "b", "timeAdded": ARRIVAL})


def classic_claim(**parts: Any) -> dict[str, Any]:
    return {"apiVersion": "cdi.k8s.io/v1alpha1", "kind": "ResourceClaim", "metadata": {"name": "c"}, **parts}


@pytest.mark.req("K3063-066")
def test_a_classic_claim_waits_for_a_pod():
    spec = filled(classic_claim(spec={"resourceClassName": "gpu"}))["spec"]
    assert spec == {"resourceClassName": "gpu", "allocationMode": "Delayed"}
    said = {"resourceClassName": "gpu", "allocationMode": "Immediate"}
    assert filled(classic_claim(spec=said))["spec"] == said


def test_a_classic_claim_starts_pending_for_one_pod():
    assert filled(classic_claim())["status"] == {"phase": "Pending", "userLimit": 1}
    said = {"phase": "Allocated", "userLimit": -1}
    assert filled(classic_claim(status=said))["status"] == said


def test_a_user_limit_of_zero_is_refused():
    """Zero is no limit that means anything; in Go it cannot be told from a limit that was not given."""
    assert filled(classic_claim(status={"userLimit": 0}))["status"]["userLimit"] == 1


def test_an_object_without_unset_fields_is_returned_itself():
    full = apply_defaults(codec.decode_document(claim(request("exactly", {}))).object, now=ARRIVAL)
    assert apply_defaults(full, now="2030-01-01T00:00:00Z") is full
    plain = classic.ResourceClass(driver_name="d")
    assert apply_defaults(plain, now=ARRIVAL) is plain


def test_the_time_of_arrival_is_an_argument():
    rows = [row for _, row in ROWS if row.value is NOW]
    assert [row.field for row in rows] == ["spec.devices[].taints[].timeAdded", "spec.taint.timeAdded"]
