"""The matrix of rights: every cell of `matrix.yaml` is checked, by authorization and write rules, on real
objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dray.server.auth.authz.policy_rules import AccessAttributes
from dray.server.http.requests import ANONYMOUS_USER, RequestUser
from tests.tables import table
from tests.unit.server.auth.cluster_state import (
    DEVICES,
    AccessChecks,
    ClusterState,
    account,
    allocated,
    claim,
    device_status,
    grant,
    node,
    person,
    pod,
    slice_of,
    thing,
)

A, B = "a.example.com", "b.example.com"
NAMESPACES = {"own": "team-a", "other": "team-b"}
NODES = {"own": "n1", "other": "n2"}
TABLE: dict[str, Any] = table(Path(__file__).parent / "matrix.yaml")
VERBS: dict[str, str] = TABLE["verbs"]

USERS: Mapping[str, RequestUser] = {
    "anonymous": ANONYMOUS_USER,
    "viewer": person("vera"),
    "editor": person("ed"),
    "namespace admin": person("ada"),
    "cluster admin": person("root"),
    "scheduler": person("dray:scheduler"),
    "kube-scheduler": person("system:kube-scheduler"),
    "controller": person("dray:controller"),
    "kube-controller-manager": person("system:kube-controller-manager"),
    "node n1": node("n1"),
    "node n2": node("n2"),
    "driver A on n1": account("driver-a", "drivers", "n1"),
    "driver A on n2": account("driver-a", "drivers", "n2"),
    "driver B": account("driver-b", "drivers", "n1"),
    "dashboard": person("dray:dashboard"),
}

GRANTS = (
    grant("view", "vera", namespace="team-a"),
    grant("edit", "ed", namespace="team-a"),
    grant("admin", "ada", namespace="team-a"),
    grant("cluster-admin", "root"),
    grant("dray:driver", "@system:serviceaccounts:drivers"),
    thing("v1", "ServiceAccount", "driver-a", "drivers", annotations={"dray.dev/driver": A}),
    thing("v1", "ServiceAccount", "driver-b", "drivers", annotations={"dray.dev/driver": B}),
)


class Target(NamedTuple):
    """What is asked for and, for writes, which object before and after."""

    asked: AccessAttributes
    old: dict[str, Any] | None = None
    new: dict[str, Any] | None = None


def _claim(where: str) -> dict[str, Any]:
    status = allocated(A, B, node_name=NODES[where], devices=[device_status(A), device_status(B)])
    return claim("c", NAMESPACES[where], status)


def _pod(where: str) -> dict[str, Any]:
    spec = {
        "resourceClaims": [{"name": "x", "resourceClaimName": "c"}],
        "volumes": [{"name": "v", "secret": {"secretName": "s"}}],
    }
    return pod("p", NAMESPACES[where], NODES[where], spec=spec, status={"phase": "Running"})


def _plain(api_version: str, kind: str, plural: str) -> Callable[[str, str], Target]:
    def made(verb: str, where: str) -> Target:
        group = api_version.rpartition("/")[0]
        namespaced = kind not in ("DeviceClass", "ResourceClass")
        namespace = NAMESPACES[where] if namespaced else ""
        return _target(
            AccessAttributes(verb, group, plural, "", namespace), thing(api_version, kind, "x", namespace)
        )

    return made


def _target(asked: AccessAttributes, document: Mapping[str, Any]) -> Target:
    """The verb on the object: made, given a label, or removed."""
    before = dict(document)
    after = deepcopy(before)
    after["metadata"]["labels"] = {"seen": "true"}
    asked = asked._replace(
        name=""
        if asked.verb in ("create", "list", "watch", "deletecollection")
        else before["metadata"]["name"]
    )
    changes: dict[str, tuple[Any, Any]] = {
        "create": (None, before),
        "update": (before, after),
        "patch": (before, after),
        "delete": (before, None),
        "deletecollection": (before, None),
    }
    return Target(asked, *changes.get(asked.verb, (None, None)))


def _claims(verb: str, where: str) -> Target:
    asked = AccessAttributes(verb, DEVICES, "resourceclaims", "", NAMESPACES[where])
    return _target(asked, claim("c", NAMESPACES[where]))


def _status(verb: str, where: str) -> Target:
    asked = AccessAttributes(verb, DEVICES, "resourceclaims", "status", NAMESPACES[where], "c")
    written = verb in ("update", "patch")
    return Target(asked, *((_claim(where), _claim(where)) if written else ()))


def _part_of_status(part: str, change: Callable[[dict[str, Any]], None]) -> Callable[[str, str], Target]:
    def made(verb: str, where: str) -> Target:
        if verb not in ("update", "patch"):
            return Target(AccessAttributes(verb, DEVICES, "resourceclaims", part, NAMESPACES[where], "c"))
        target = _status(verb, where)
        new = deepcopy(_claim(where))
        change(new["status"])
        return Target(target.asked, _claim(where), new)

    return made


def _reserve(status: dict[str, Any]) -> None:
    status["reservedFor"] = [{"resource": "pods", "name": "p", "uid": "u"}]


def _report(status: dict[str, Any]) -> None:
    status["devices"][0] = device_status(A, "False")


def _selecting(target: Target, where: str) -> Target:
    if target.asked.verb in ("list", "watch", "deletecollection"):
        return target._replace(asked=target.asked._replace(selector=f"spec.nodeName={NODES[where]}"))
    return target


def _slices(on: str) -> Callable[[str, str], Target]:
    def made(verb: str, where: str) -> Target:
        document = slice_of(A, NODES[on], f"slice-{NODES[on]}")
        return _selecting(_target(AccessAttributes(verb, DEVICES, "resourceslices"), document), on)

    return made


def _pods(verb: str, where: str) -> Target:
    return _selecting(_target(AccessAttributes(verb, "", "pods", "", NAMESPACES[where]), _pod(where)), where)


def _pod_status(verb: str, where: str) -> Target:
    asked = AccessAttributes(verb, "", "pods", "status", NAMESPACES[where], "p")
    after = _pod(where) | {"status": {"phase": "Failed"}}
    return Target(asked, *((_pod(where), after) if verb in ("update", "patch") else ()))


def _secrets(verb: str, where: str) -> Target:
    return _target(
        AccessAttributes(verb, "", "secrets", "", NAMESPACES[where]),
        thing("v1", "Secret", "s", NAMESPACES[where]),
    )


def _path(path: str) -> Callable[[str, str], Target]:
    return lambda verb, where: Target(AccessAttributes(verb, path=path))


KINDS: Mapping[str, Callable[[str, str], Target]] = {
    "claim": _claims,
    "claim/status": _status,
    "claim/binding": _part_of_status("binding", _reserve),
    "claim/driver": _part_of_status("driver", _report),
    "template": _plain(f"{DEVICES}/v1", "ResourceClaimTemplate", "resourceclaimtemplates"),
    "deviceclass": _plain(f"{DEVICES}/v1", "DeviceClass", "deviceclasses"),
    "resourceclass": _plain("cdi.k8s.io/v1alpha1", "ResourceClass", "resourceclasses"),
    "slice-n1": _slices("own"),
    "slice-n2": _slices("other"),
    "pod": _pods,
    "pod/status": _pod_status,
    "quota": _plain("v1", "ResourceQuota", "resourcequotas"),
    "event": _plain("v1", "Event", "events"),
    "secret": _secrets,
    "metrics": _path("/metrics"),
    "debug": _path("/debug/tasks"),
}


@pytest.fixture(scope="module")
def checks() -> Iterator[AccessChecks]:
    there = [_claim("own"), _claim("other"), _pod("own"), _pod("other")]
    slices = [slice_of(A, name, f"slice-{name}") for name in NODES.values()]
    with ClusterState([*GRANTS, *there, *slices]) as world:
        yield AccessChecks(world)


def is_allowed(checks: AccessChecks, user: RequestUser, target: Target) -> bool:
    """Return whether authorization and rules allow it."""
    if not checks.access.allows(user, target.asked):
        return False
    if target.old is None and target.new is None:
        return True
    asked = target.asked
    verb = "delete" if asked.verb == "deletecollection" else asked.verb
    return checks.refuses(user, target.old, target.new, asked.subresource, verb) is None


@cache
def expected(cell: str) -> dict[str, str]:
    """`glw | -` for each column."""
    own, bar, other = cell.partition("|")
    return {"own": own.strip(" -"), "other": other.strip(" -") if bar else own.strip(" -")}


CELLS = [(role, kind) for role in USERS for kind in KINDS]


def test_every_cell_of_the_matrix_has_an_answer():
    assert {role: set(row) for role, row in TABLE["matrix"].items()} == {role: set(KINDS) for role in USERS}
    cells = [cell for row in TABLE["matrix"].values() for cell in row.values()]
    assert set("".join(cells)) <= {*VERBS, " ", "|", "-"}
    assert len(CELLS) * len(VERBS) * len(NAMESPACES) == 3840


@pytest.mark.req("K3063-024", "K3063-030", "K3063-105")
@pytest.mark.parametrize(("role", "kind"), CELLS, ids=[f"{role}: {kind}" for role, kind in CELLS])
def test_the_matrix(checks, role, kind):
    found = {
        where: "".join(
            letter
            for letter, verb in VERBS.items()
            if is_allowed(checks, USERS[role], KINDS[kind](verb, where))
        )
        for where in NAMESPACES
    }
    assert found == expected(TABLE["matrix"][role][kind])


def test_without_roles_everything_is_refused():
    people = {role: user for role, user in USERS.items() if user.node_name is None}
    with ClusterState([_pod("own"), _claim("own")], roles=False) as world:
        checks = AccessChecks(world)
        allowed = [
            (role, kind, verb)
            for role, user in people.items()
            for kind, target in KINDS.items()
            for verb in VERBS.values()
            if is_allowed(checks, user, target(verb, "own"))
        ]
    assert allowed == []
