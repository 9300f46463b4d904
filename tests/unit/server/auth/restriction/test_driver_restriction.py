"""A driver acts for itself and on its node; allocation, admin access and finalizers are for others."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from dray.server.auth.authz.policy_rules import AccessAttributes
from dray.server.auth.restriction.claim_restriction import find_changed_drivers
from dray.server.auth.restriction.driver_restriction import DriverAuthorizer, DriverBinding
from dray.server.http.requests import RequestUser
from dray.store import KeyUnchanged
from tests.unit.server.auth.cluster_state import (
    DEVICES,
    AccessChecks,
    ClusterState,
    account,
    allocated,
    change_of,
    claim,
    device_status,
    grant,
    person,
    pod,
    role,
    rule,
    slice_of,
    thing,
)

A, B = "a.example.com", "b.example.com"
PROTECTION = "resource.kubernetes.io/delete-protection"

A_ON_N1 = account("driver-a", "drivers", "n1")
A_EVERYWHERE = account("driver-a", "drivers")
LABELLED = account("labelled", "drivers", "n1")
BOTH = account("both", "drivers", "n1")
CERTIFIED = person("gpu-driver", "dray:drivers", f"dray:driver:{A}", "dray:on-node:n1")
BY_ROLE = account("by-role", "drivers", "n1")
BY_ROLE_HOMELESS = account("by-role", "drivers")
CENTRAL = person("central")
UNNAMED = account("unnamed", "drivers", "n1")
ROOT = person("root")

THERE = (
    thing("v1", "Namespace", "team-a"),
    thing("v1", "Namespace", "lab", labels={"resource.kubernetes.io/admin-access": "true"}),
    thing("v1", "ServiceAccount", "driver-a", "drivers", annotations={"dray.dev/driver": A}),
    thing("v1", "ServiceAccount", "labelled", "drivers", labels={"dray.dev/driver": A}),
    thing("v1", "ServiceAccount", "both", "drivers", annotations={"dray.dev/driver": f"{A}, {B}"}),
    grant("dray:driver", "@system:serviceaccounts:drivers"),
    role(
        "a-on-its-node",
        rule("associated-node:update associated-node:patch", "resourceclaims/driver", DEVICES, A),
    ),
    role(
        "a-anywhere", rule("arbitrary-node:update arbitrary-node:patch", "resourceclaims/driver", DEVICES, A)
    ),
    grant("a-on-its-node", "system:serviceaccount:drivers:by-role"),
    grant("a-anywhere", "central"),
    grant("dray:driver", "central"),
    grant("cluster-admin", "root"),
    grant("edit", "ed", namespace="team-a"),
    pod("p1", "team-a", "n1", uid="u1"),
)


@pytest.fixture(scope="module")
def checks() -> Iterator[AccessChecks]:
    with ClusterState(THERE) as world:
        yield AccessChecks(world)


@pytest.mark.parametrize(
    ("user", "spokesman"),
    [
        (A_ON_N1, DriverBinding(frozenset({A}), "n1")),
        (A_EVERYWHERE, DriverBinding(frozenset({A}), None)),
        (LABELLED, DriverBinding(frozenset({A}), "n1")),
        (BOTH, DriverBinding(frozenset({A, B}), "n1")),
        (CERTIFIED, DriverBinding(frozenset({A}), "n1")),
        (UNNAMED, DriverBinding(None, "n1")),
        (person("x", "dray:on-node:n1", "dray:on-node:n2"), DriverBinding(None, None)),
    ],
)
def test_whom_an_identity_is_bound_to(checks, user, spokesman):
    assert DriverAuthorizer(checks.world.cache, checks.access).find_driver_binding(user) == spokesman


# --- slices ---


@pytest.mark.parametrize(
    ("user", "a_n1", "a_n2", "a_all", "b_n1"),
    [
        (A_ON_N1, True, False, False, False),
        (A_EVERYWHERE, True, True, True, False),
        (LABELLED, True, False, False, False),
        (BOTH, True, False, False, True),
        (CERTIFIED, True, False, False, False),
        (BY_ROLE, True, False, False, False),
        (BY_ROLE_HOMELESS, False, False, False, False),
        (CENTRAL, True, True, True, False),
        (UNNAMED, False, False, False, False),
        (ROOT, True, True, True, True),
    ],
)
def test_only_a_driver_on_its_node_writes_its_slices(checks, user, a_n1, a_n2, a_all, b_n1):
    slices = [slice_of(A, "n1"), slice_of(A, "n2"), slice_of(A, None), slice_of(B, "n1")]
    made = [checks.refuses(user, None, one) is None for one in slices]
    changed = [checks.refuses(user, one, labelled(one)) is None for one in slices]
    assert made == changed == [a_n1, a_n2, a_all, b_n1]


def labelled(document: dict[str, Any]) -> dict[str, Any]:
    changed = deepcopy(document)
    changed["metadata"]["labels"] = {"seen": "true"}
    return changed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (slice_of(A, "n1"), slice_of(A, "n2")),
        (slice_of(A, "n2"), slice_of(A, "n1")),
        (slice_of(A, "n1"), slice_of(B, "n1")),
        (slice_of(B, "n1"), slice_of(A, "n1")),
        (slice_of(A, "n2"), None),
        (slice_of(B, "n1"), None),
    ],
)
def test_a_slice_can_neither_be_taken_nor_given_away(checks, old, new):
    assert checks.refuses(A_ON_N1, old, new) is not None


def test_drivers_and_unbound_users_may_delete_slices(checks):
    assert checks.refuses(A_ON_N1, slice_of(A, "n1"), None) is None
    assert checks.refuses(UNNAMED, slice_of(B, "n2"), None) is None


def test_a_refusal_says_what_would_help(checks):
    assert checks.refuses(UNNAMED, None, slice_of(A, "n1")).message == (
        'resourceslices.resource.k8s.io "s1" is forbidden: User "system:serviceaccount:drivers:unnamed" may '
        'not act for driver "a.example.com"; annotate its service account with '
        '`dray.dev/driver: a.example.com`, or grant it "arbitrary-node:update" on "resourceclaims/driver"'
    )
    assert 'may act for driver "a.example.com" and not for "b.example.com"' in (
        checks.refuses(A_ON_N1, None, slice_of(B, "n1")).message
    )


@pytest.mark.parametrize("field", ["annotations", "labels"])
def test_binding_an_account_to_a_driver_requires_the_right_to_bind(checks, field):
    plain = thing("v1", "ServiceAccount", "x", "team-a")
    bound = thing("v1", "ServiceAccount", "x", "team-a", **{field: {"dray.dev/driver": A}})
    for old, new in ((None, bound), (plain, bound), (bound, plain)):
        failure = checks.refuses(person("ed"), old, new)
        assert failure is not None
        assert 'needs the verb "bind" on "drivers" in API group "dray.dev"' in failure.message
        assert checks.refuses(ROOT, old, new) is None
    assert checks.refuses(person("ed"), None, plain) is None
    assert checks.refuses(person("ed"), bound, labelled(bound) if field == "annotations" else bound) is None


# --- the status of a claim ---


def status(**more: Any) -> dict[str, Any]:
    return allocated(A, B, devices=[device_status(A), device_status(B)], **more)


def claim_with(**fields: Any) -> dict[str, Any]:
    return claim("c", "team-a", fields or None)


ON_N1, ON_N2, ANYWHERE = status(), status(node_name="n2"), status(node_name=None)
A_CHANGED = {"devices": [device_status(A, "False"), device_status(B)]}
B_CHANGED = {"devices": [device_status(A), device_status(B, "False")]}
A_GONE = {"devices": [device_status(B)]}


@pytest.mark.parametrize(
    ("user", "old", "changed", "yes"),
    [
        (A_ON_N1, ON_N1, A_CHANGED, True),
        (A_ON_N1, ON_N1, A_GONE, True),
        (A_ON_N1, ON_N1, B_CHANGED, False),
        (A_ON_N1, ON_N1, {"devices": []}, False),
        (A_ON_N1, ON_N2, A_CHANGED, False),
        (A_ON_N1, ANYWHERE, A_CHANGED, False),
        (
            A_ON_N1,
            ANYWHERE | {"reservedFor": [{"resource": "pods", "name": "p1", "uid": "u1"}]},
            A_CHANGED,
            True,
        ),
        (
            A_ON_N1,
            ANYWHERE | {"reservedFor": [{"resource": "pods", "name": "p1", "uid": "other"}]},
            A_CHANGED,
            False,
        ),
        (A_EVERYWHERE, ON_N1, A_CHANGED, False),
        (CERTIFIED, ON_N1, A_CHANGED, True),
        (CERTIFIED, ON_N2, A_CHANGED, False),
        (BY_ROLE, ON_N1, A_CHANGED, True),
        (BY_ROLE, ON_N1, B_CHANGED, False),
        (BY_ROLE, ON_N2, A_CHANGED, False),
        (CENTRAL, ON_N2, A_CHANGED, True),
        (CENTRAL, ON_N2, B_CHANGED, False),
        (UNNAMED, ON_N1, A_CHANGED, False),
        (ROOT, ON_N2, B_CHANGED, True),
    ],
)
@pytest.mark.parametrize("verb", ["update", "patch"])
def test_only_drivers_of_the_claim_write_device_status(checks, user, old, changed, yes, verb):
    before, after = claim_with(**old), claim_with(**old | changed)
    assert (checks.refuses(user, before, after, "status", verb) is None) is yes


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, allocated(A)),
        (ON_N1, {}),
        (ON_N1, ON_N1 | {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}),
        (ON_N1 | {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}, ON_N1),
        (ON_N1, ON_N1 | A_CHANGED | {"allocation": ON_N2["allocation"]}),
    ],
    ids=["allocate", "free", "reserve", "let go", "move and tell"],
)
@pytest.mark.parametrize("verb", ["update", "patch"])
def test_drivers_and_users_write_neither_allocation_nor_reservations(checks, old, new, verb):
    before, after = claim_with(**old), claim_with(**new)
    for user in (A_ON_N1, CENTRAL, BY_ROLE, person("ed")):
        failure = checks.refuses(user, before, after, "status", verb)
        assert failure is not None
        assert failure.message.startswith(
            f'resourceclaims.resource.k8s.io "c" is forbidden: User "{user.name}" cannot {verb} resource '
            '"resourceclaims/binding" in API group "resource.k8s.io" in the namespace "team-a"'
        )


@pytest.mark.parametrize("name", ["dray:scheduler", "dray:controller", "system:kube-scheduler"])
def test_schedulers_and_controllers_allocate_and_free(checks, name):
    assert checks.refuses(person(name), claim_with(), claim_with(**allocated(A)), "status") is None
    assert checks.refuses(person(name), claim_with(**ON_N1), claim_with(), "status") is None
    assert (
        checks.refuses(person(name), claim_with(**ON_N1), claim_with(**ON_N1 | A_CHANGED), "status")
        is not None
    )


def test_device_status_that_vanishes_with_its_allocation_needs_no_driver():
    def changed(new: dict[str, Any], old: dict[str, Any]) -> list[str]:
        change = change_of(ROOT, claim_with(**old), claim_with(**new), "status")
        return find_changed_drivers(change.view, change.old_view)

    assert changed({}, ON_N1) == []
    assert changed(ON_N1 | A_GONE, ON_N1) == [A]
    assert changed(allocated(B, devices=[device_status(B)]), ON_N1) == []
    assert changed(ON_N1, allocated(A, B)) == [A, B]


def test_a_classic_driver_writes_only_claims_of_its_own(checks):
    def classic(driver: str, **more: Any) -> dict[str, Any]:
        return thing(
            "cdi.k8s.io/v1alpha1",
            "ResourceClaim",
            "c",
            "team-a",
            spec={"resourceClassName": "k"},
            status={"phase": "Pending", "driverName": driver, **more},
        )

    done = {"phase": "Allocated"}
    pods = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]
    assert checks.refuses(A_ON_N1, classic(A), classic(A, **done), "status") is None
    assert checks.refuses(A_ON_N1, classic(B), classic(B, **done), "status") is not None
    assert checks.refuses(A_ON_N1, classic(A), classic(B), "status") is not None
    assert checks.refuses(A_ON_N1, classic(A), classic(A, reservedFor=pods), "status") is not None
    assert (
        checks.refuses(person("dray:scheduler"), classic(A), classic(A, reservedFor=pods), "status") is None
    )


# --- users ---


@pytest.mark.req("K3063-030")
def test_users_write_claims_and_never_their_status(checks):
    ed = person("ed")
    for verb in ("create", "update", "patch", "delete"):
        assert checks.access.allows(ed, AccessAttributes(verb, DEVICES, "resourceclaims", "", "team-a", "c"))
    for verb in ("update", "patch"):
        assert not checks.access.allows(
            ed, AccessAttributes(verb, DEVICES, "resourceclaims", "status", "team-a", "c")
        )
    # even when a claim comes with a status of its own
    assert checks.refuses(ed, None, claim_with(**allocated(A))) is not None


def finalized(*finalizers: str, gone: bool = False) -> dict[str, Any]:
    more = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if gone else {}
    return claim("c", "team-a", None, finalizers=list(finalizers), **more)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, finalized(PROTECTION)),
        (finalized(), finalized(PROTECTION)),
        (finalized(PROTECTION), finalized()),
        (finalized(PROTECTION, "example.com/own"), finalized("example.com/own")),
        (finalized(PROTECTION, gone=True), None),
    ],
)
def test_finalizers_of_the_system_are_written_by_the_system(checks, old, new):
    failure = checks.refuses(person("ed"), old, new)
    assert failure is not None
    assert f"cannot add or remove the finalizer `{PROTECTION}`" in failure.message
    for name in ("dray:scheduler", "dray:controller", "system:kube-controller-manager", "root"):
        assert checks.refuses(person(name), old, new) is None


def test_other_finalizers_and_protected_claims_are_the_users_own(checks):
    ed = person("ed")
    assert checks.refuses(ed, finalized(), finalized("example.com/own")) is None
    assert checks.refuses(ed, finalized(PROTECTION), labelled(finalized(PROTECTION))) is None
    assert checks.refuses(ed, finalized(), None) is None


# --- admin access ---

ADMIN = {"adminAccess": True}
LABEL = (
    "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the "
    "containing namespace"
)


def template(namespace: str) -> dict[str, Any]:
    inner = claim("x", namespace, exactly=ADMIN)["spec"]
    return thing(f"{DEVICES}/v1", "ResourceClaimTemplate", "t", namespace, spec={"spec": inner})


def admin_result(namespace: str) -> dict[str, Any]:
    given = allocated(A)
    given["allocation"]["devices"]["results"][0]["adminAccess"] = True
    return claim("c", namespace, given, exactly=ADMIN)


@pytest.mark.parametrize(
    ("make", "old", "user", "path"),
    [
        (
            lambda where: claim("c", where, exactly=ADMIN),
            None,
            "root",
            "spec.devices.requests[0].exactly.adminAccess",
        ),
        (template, None, "root", "spec.spec.devices.requests[0].exactly.adminAccess"),
        (
            admin_result,
            lambda where: claim("c", where, exactly=ADMIN),
            "dray:scheduler",
            "status.allocation.devices.results[0].adminAccess",
        ),
    ],
    ids=["claim", "template", "status"],
)
def test_admin_access_is_for_labelled_namespaces_even_for_administrators(checks, make, old, user, path):
    who = person(user)
    before = {where: old(where) if old else None for where in ("team-a", "lab", "nowhere")}
    for where in ("team-a", "nowhere"):
        failure = checks.refuses(who, before[where], make(where))
        assert failure is not None
        assert (failure.code, failure.reason) == (422, "Invalid")
        assert failure.message.endswith(f"is invalid: {path}: Forbidden: {LABEL}")
    extras = [extra for extra in checks.judge(who, before["lab"], make("lab")) if extra.compares]
    (compare,) = extras[0].compares
    assert isinstance(compare, KeyUnchanged)
    assert compare.key == b"/registry/core/namespaces/lab"


def test_only_new_admin_access_is_checked(checks):
    old = claim("c", "team-a", exactly=ADMIN)
    assert checks.refuses(ROOT, old, labelled(old)) is None
    assert checks.refuses(ROOT, admin_result("team-a"), labelled(admin_result("team-a"))) is None
    refused = claim("c", "team-a", exactly={"adminAccess": False})
    assert checks.refuses(ROOT, None, refused) is None


def test_masters_may_act_for_every_driver(checks):
    master = RequestUser("anybody", ("system:masters",))
    assert checks.refuses(master, None, slice_of(A, "n1")) is None
    assert checks.refuses(master, claim_with(**ON_N1), claim_with(**ON_N1 | A_CHANGED), "status") is None
