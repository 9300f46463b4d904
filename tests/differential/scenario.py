"""Scenarios: objects that are there first, and steps after each of which a cluster settles."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cases import allocator_notation as notation
from tests.cases.allocator_runner import CLUSTER, Case, cases
from tests.tables import tables

Document = dict[str, Any]

ROOT = Path(__file__).resolve().parent
OWN = ROOT / "scenarios"
CASES = ROOT.parent / "cases" / "allocator"
NAMESPACE = notation.NAMESPACE
ADMIN_NAMESPACE = "admin"
"""A namespace whose claims may have admin access."""
KEYS = (
    *CLUSTER,
    "name",
    "rows",
    "namespace",
    "claims",
    "templates",
    "objects",
    "pod",
    "steps",
    "ties",
    "decided",
)
LISTS = frozenset({"list", "ints", "bools", "strings", "versions"})
"""Values of attributes that are lists (KEP-5491, and `DRAListTypeAttributes` of Kubernetes)."""
PROPOSED = ("priority", "pool_priority")
"""Fields of proposals that no release of Kubernetes has (KEP-5773)."""


@dataclass(frozen=True)
class Step:
    """Objects that are created, changed and deleted, in this order; `kind/name` names one."""

    create: tuple[Document, ...] = ()
    patch: tuple[tuple[str, Document], ...] = ()
    """Merge patches; `kind/name/status` is a subresource."""
    delete: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """What both clusters are given."""

    name: str
    objects: tuple[Document, ...]
    steps: tuple[Step, ...]
    has_ties: bool = False
    """Whether several nodes are equally good, so that each scheduler may choose another."""
    namespace: str = NAMESPACE
    decided: str = ""
    """The rule that explains every difference of this scenario, if it shows one on purpose."""

    @property
    def digest(self) -> str:
        """A short digest of all that the scenario says: a recording is valid for exactly that."""
        said = json.dumps([self.objects, [vars(step) for step in self.steps], self.namespace])
        return hashlib.sha256(said.encode()).hexdigest()[:12]


def load_own_scenarios() -> Iterator[Scenario]:
    """Scenarios written for this suite: one YAML document each, in the notation of the allocator cases.

    `rows` are scenarios that differ from their parent in some keys.
    """
    for file in sorted(OWN.glob("*.yaml")):
        for said in filter(None, tables(file)):
            notation.only(said, KEYS, f"{file.name}: {said['name']}")
            for row in said.pop("rows", [{}]):
                notation.only(row, KEYS, f"{file.name}: {said['name']}: row")
                name = ": ".join(filter(None, (said["name"], row.get("name"))))
                yield _read_scenario(file.stem, {**said, **row, "name": name})


def load_case_scenarios() -> Iterator[Scenario]:
    """The allocator cases, as far as a cluster with the defaults of Kubernetes knows what they use."""
    for file in sorted(CASES.glob("*.yaml")):
        for case in cases(file):
            if _can_run(case) and not _uses_lists((read := _read_case(case)).objects):
                yield read


def load_vector_scenarios(file: Path) -> Iterator[Scenario]:
    """Vectors of `dray vectors`: one pod with all claims on the node of the vector."""
    for line in file.read_text().splitlines():
        vector = json.loads(line)
        claims = vector["claimsToAllocate"]
        objects = (
            _build_node(vector["node"]["metadata"]["name"], vector["node"]["metadata"].get("labels", {})),
        )
        objects += (*vector["classes"], *vector["slices"], *claims)
        pod = build_pod(
            "pod", [claim["metadata"]["name"] for claim in claims], claims[0]["metadata"]["namespace"]
        )
        yield Scenario(f"vector {vector['name']}", objects, (Step(create=(pod,)),))


def build_pod(name: str, claims: list[str], namespace: str = NAMESPACE, **spec: Any) -> Document:
    """A pod that uses claims; `template:NAME` makes its own one."""
    entries = []
    for number, claim in enumerate(claims):
        kind, _, source = claim.rpartition(":")
        field = "resourceClaimTemplateName" if kind == "template" else "resourceClaimName"
        entries.append({"name": f"c{number}", field: source})
    container: Document = {"name": "main", "image": "pause:3"}
    container["resources"] = {"claims": [{"name": entry["name"]} for entry in entries]}
    container["resources"] |= spec.pop("resources", {})
    if "podResources" in spec:
        spec["resources"] = spec.pop("podResources")
    meta = {"name": name, "namespace": namespace}
    body = {"containers": [container], "resourceClaims": entries, "terminationGracePeriodSeconds": 0, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body}


def _read_scenario(file: str, said: Document) -> Scenario:
    cluster = {key: said[key] for key in CLUSTER if key in said}
    namespace = said.get("namespace", NAMESPACE)
    objects = list(_build_cluster(cluster))
    objects += [notation.claim(name, each) for name, each in said.get("claims", {}).items()]
    objects += [_build_template(name, each) for name, each in said.get("templates", {}).items()]
    objects += said.get("objects", [])
    one = {"pods": {"pod": {"claims": list(said.get("claims", {})), **said.get("pod", {})}}}
    steps = tuple(_read_step(step, namespace) for step in said.get("steps", [one]))
    moved = tuple(_move(each, namespace) for each in objects)
    return Scenario(
        f"{file}: {said['name']}",
        moved,
        steps,
        said.get("ties", False),
        namespace,
        said.get("decided", ""),
    )


def _read_step(said: Document, namespace: str) -> Step:
    notation.only(said, ("pods", "claims", "objects", "patch", "delete"), "step")
    pods = said.get("pods", {})
    made = [build_pod(name, each.pop("claims", []), **each) for name, each in copy.deepcopy(pods).items()]
    made += [notation.claim(name, each) for name, each in said.get("claims", {}).items()]
    created = tuple(_move(each, namespace) for each in (*made, *said.get("objects", [])))
    return Step(created, tuple(said.get("patch", {}).items()), tuple(said.get("delete", ())))


def _move(document: Document, namespace: str) -> Document:
    """Move an object of the default namespace to the one of the scenario."""
    metadata = document["metadata"]
    if "namespace" not in metadata:
        return document
    return {**document, "metadata": {**metadata, "namespace": namespace}}


def _build_template(name: str, said: Any) -> Document:
    claim = notation.claim(name, said)
    return {**claim, "kind": "ResourceClaimTemplate", "spec": {"spec": claim["spec"]}}


def _can_run(case: Case) -> bool:
    first = case.steps[0]
    text = json.dumps(case.steps)
    if len(case.steps) > 1 or "gates" in first or first.get("invalid") or "taken" in first:
        return False
    return not any(f'"{field}"' in text for field in PROPOSED)


def _uses_lists(objects: tuple[Document, ...]) -> bool:
    """Whether an attribute is a list: as KEP-5491 writes it, or behind a gate that is off in Kubernetes."""
    slices = [each for each in objects if each["kind"] == "ResourceSlice"]
    devices = [device for each in slices for device in each["spec"].get("devices", ())]
    values = [value for device in devices for value in device.get("attributes", {}).values()]
    return any(not LISTS.isdisjoint(value) for value in values)


def _read_case(case: Case) -> Scenario:
    step = case.steps[0]
    objects = list(_build_cluster(step))
    asked = step.get("claims") or {"work": step["claim"]}
    objects += [notation.claim(name, said) for name, said in asked.items()]
    nodes = step.get("nodes") or ["node-1"]
    return Scenario(
        case.name, tuple(objects), (Step(create=(build_pod("pod", list(asked)),)),), len(nodes) > 1
    )


def _build_cluster(said: Document) -> Iterator[Document]:
    nodes = said.get("nodes") or ["node-1"]
    labels = nodes if isinstance(nodes, dict) else {name: {} for name in nodes}
    for name, own in labels.items():
        yield _build_node(name, own or {})
    for name, text in said.get("classes", {"gpu": f'device.driver == "{notation.DRIVER}"'}).items():
        yield notation.device_class(name, text)
    pools = dict(said.get("pools", {}))
    if "devices" in said:
        pools[f"{notation.DRIVER}/{next(iter(labels))}"] = said["devices"]
    for key, pool in pools.items():
        yield from notation.slices(key, pool, list(labels))


def _build_node(name: str, labels: Document) -> Document:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "500"}
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [condition]},
    }
