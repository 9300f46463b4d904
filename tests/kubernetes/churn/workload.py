"""A random workload by seed: each step creates, changes or deletes something, and remembers what there is.

The steps are a table with weights. A step that finds nothing to work on does nothing. Every refusal that is
not a matter of course (gone, there already, being deleted, over quota, nobody answers) is noted.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from tests.faults.ledger.api import MERGE, Api
from tests.kubernetes.churn import objects
from tests.kubernetes.churn.kubelets import SimulatedKubelets, format_now
from tests.kubernetes.churn.objects import build_path

NODES = 5
MOST_NAMESPACES, MOST_PODS, MOST_WORKLOADS, MOST_RULES = 3, 12, 3, 3
EXPECTED = (0, 403, 404, 409)
"""Codes of refusals that are a matter of course."""
WORKLOADS = ("deployments", "statefulsets", "daemonsets", "jobs", "cronjobs")
Place = tuple[str, str]
"""Namespace and name."""


class Workload:
    """What exists, and the steps that change it."""

    def __init__(self, api: Api, kubelets: SimulatedKubelets, rng: random.Random) -> None:
        self._api, self._kubelets, self._rng = api, kubelets, rng
        self._number = 0
        self._namespaces: list[str] = []
        self._existing: dict[str, list[Place]] = {kind: [] for kind in ("pods", *WORKLOADS)}
        self._rules: list[str] = []
        self._generations: dict[str, int] = {}
        self.steps: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self._table: tuple[tuple[float, Callable[[], Awaitable[None]]], ...] = (
            (10, self._create_pod),
            (9, self._delete_pod),
            (3, self._create_deployment),
            (2, self._create_stateful_set),
            (1, self._create_daemon_set),
            (3, self._create_job),
            (0.5, self._create_cron_job),
            (5, self._change_workload),
            (4, self._delete_workload),
            (0.6, self._create_namespace),
            (0.4, self._delete_namespace),
            (0.7, self._cordon_node),
            (1.0, self._uncordon_node),
            (0.2, self._remove_node),
            (0.8, self._add_node),
            (0.7, self._add_rule),
            (0.9, self._remove_rule),
            (1.0, self._publish_again),
            (0.5, self._evict_pod),
        )

    async def furnish(self) -> None:
        """Create what the steps need: classes, nodes with devices, and a first namespace."""
        for plural, document in objects.build_cluster_objects():
            await self._send("POST", build_path(plural), document)
        for _ in range(NODES):
            await self._add_node()
        await self._create_namespace()

    async def step(self) -> None:
        weights, steps = zip(*self._table, strict=True)
        (chosen,) = self._rng.choices(steps, weights)
        self.steps[chosen.__name__.strip("_")] += 1
        await chosen()

    async def drain(self) -> None:
        """Delete every namespace; whatever is in them has to go by itself."""
        for rule in list(self._rules):
            await self._remove_rule(rule)
        for name in list(self._namespaces):
            await self._delete_namespace(name)

    async def remove_nodes(self) -> None:
        """Delete the nodes with their devices, and the class."""
        for name in sorted(self._kubelets.nodes):
            await self._remove_node(name)
        for plural, document in objects.build_cluster_objects():
            await self._send("DELETE", build_path(plural, name=document["metadata"]["name"]))

    async def _send(self, method: str, path: str, body: Any = None, content: str = MERGE) -> int:
        kind = content if method == "PATCH" else "application/json"
        code, answer = await self._api.send(method, path, body, kind)
        if code >= 400 and (code not in EXPECTED or _is_odd(code, answer)):
            self.refusals[f"{method} {path.rsplit('/', 1)[0]}: {code} {answer.get('message')}"] += 1
        return code

    def _pick(self, plural: str) -> Place | None:
        found = self._existing[plural]
        return found.pop(self._rng.randrange(len(found))) if found else None

    def _choose_claims(self) -> tuple[str, ...]:
        return self._rng.choices(
            (
                (),
                ("gpus-1",),
                ("gpus-2",),
                ("shared-0",),
                ("shared-1", "gpus-1"),
                (f"gpus-{objects.DEVICES + 1}",),
            ),
            (2, 6, 3, 3, 2, 0.7),
        )[0]

    async def _create(self, plural: str, prefix: str, build: Callable[[str, str], Any], most: int) -> None:
        if not self._namespaces or len(self._existing[plural]) >= most:
            return
        self._number += 1
        name, namespace = f"{prefix}-{self._number}", self._rng.choice(self._namespaces)
        code = await self._send("POST", build_path(plural, namespace), build(name, namespace))
        if code in (0, 201):
            self._existing[plural].append((namespace, name))

    async def _create_pod(self) -> None:
        labels = {}
        ends = self._rng.choices(("", "Succeeded", "Failed"), (3, 1, 1))[0]
        if ends:
            labels[objects.ENDS] = ends
        if self._rng.random() < 0.4:
            labels[objects.DRIVER_STATUS] = "yes"
        spec = objects.build_pod_spec(*self._choose_claims(), restart="Never" if ends else "Always")
        await self._create("pods", "p", lambda name, at: objects.build_pod(name, at, spec, labels), MOST_PODS)

    async def _delete_pod(self) -> None:
        if place := self._pick("pods"):
            await self._send("DELETE", build_path("pods", *place))

    async def _evict_pod(self) -> None:
        if self._existing["pods"]:
            namespace, name = self._rng.choice(self._existing["pods"])
            metadata = {"name": name, "namespace": namespace}
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
            await self._send("POST", f"{build_path('pods', namespace, name)}/eviction", body)

    async def _create_workload(self, plural: str, prefix: str, spec: Any, **more: Any) -> None:
        await self._create(
            plural,
            prefix,
            lambda name, at: objects.build_workload(plural, name, at, spec, **more),
            MOST_WORKLOADS,
        )

    async def _create_deployment(self) -> None:
        spec = objects.build_pod_spec(*self._rng.choice(((), ("gpus-1",), ("shared-0",))))
        labels = {objects.DRIVER_STATUS: "yes"}
        await self._create_workload(
            "deployments", "d", spec, replicas=self._rng.randrange(1, 4), labels=labels
        )

    async def _create_stateful_set(self) -> None:
        spec = objects.build_pod_spec(*self._rng.choice(((), ("gpus-1",))))
        await self._create_workload("statefulsets", "s", spec, replicas=self._rng.randrange(1, 3))

    async def _create_daemon_set(self) -> None:
        await self._create_workload("daemonsets", "e", objects.build_pod_spec())

    async def _create_job(self) -> None:
        spec = objects.build_pod_spec(*self._rng.choice(((), ("gpus-1",))), restart="Never")
        labels = {objects.ENDS: self._rng.choices(("Succeeded", "Failed"), (4, 1))[0]}
        more = {"completions": 2, "parallelism": 2, "backoffLimit": 1, "ttlSecondsAfterFinished": 5}
        await self._create_workload("jobs", "j", spec, labels=labels, **more)

    async def _create_cron_job(self) -> None:
        spec = objects.build_pod_spec(restart="Never")
        await self._create_workload("cronjobs", "c", spec, labels={objects.ENDS: "Succeeded"})

    async def _change_workload(self) -> None:
        """Scale a workload, or change its pods."""
        plural = self._rng.choice(("deployments", "statefulsets"))
        if not self._existing[plural]:
            return
        path = build_path(plural, *self._rng.choice(self._existing[plural]))
        if self._rng.random() < 0.5:
            replicas = {"spec": {"replicas": self._rng.randrange(0, 4)}}
            await self._send("PATCH", f"{path}/scale", replicas)
        else:
            change = {"metadata": {"annotations": {"changed": format_now(True)}}}
            await self._send("PATCH", path, {"spec": {"template": change}})

    async def _delete_workload(self) -> None:
        plural = self._rng.choice(WORKLOADS)
        if place := self._pick(plural):
            policy = self._rng.choice(("Background", "Background", "Foreground"))
            options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}
            await self._send("DELETE", build_path(plural, *place), options)

    async def _create_namespace(self) -> None:
        if len(self._namespaces) >= MOST_NAMESPACES:
            return
        self._number += 1
        name = f"churn-{self._number}"
        self._namespaces.append(name)
        for plural, document in objects.build_namespace_objects(name):
            home = build_path(plural, "" if plural == "namespaces" else name)
            await self._send("POST", home, document)

    async def _delete_namespace(self, name: str = "") -> None:
        """Delete a namespace with everything in it, but keep one unless it is named."""
        if not name and len(self._namespaces) < 2:
            return
        chosen = name or self._rng.choice(self._namespaces)
        if await self._send("DELETE", build_path("namespaces", name=chosen)) == 0:
            return
        self._namespaces.remove(chosen)
        for plural, places in self._existing.items():
            self._existing[plural] = [place for place in places if place[0] != chosen]

    async def _cordon_node(self) -> None:
        await self._patch_some_node({"spec": {"unschedulable": True}})

    async def _uncordon_node(self) -> None:
        await self._patch_some_node({"spec": {"unschedulable": None}})

    async def _patch_some_node(self, change: Any) -> None:
        if self._kubelets.nodes:
            name = self._rng.choice(sorted(self._kubelets.nodes))
            await self._send("PATCH", build_path("nodes", name=name), change)

    async def _add_node(self) -> None:
        if len(self._kubelets.nodes) >= NODES:
            return
        self._number += 1
        name = f"n-{self._number}"
        if await self._send("POST", build_path("nodes"), objects.build_node(name)) != 201:
            return
        path = f"{build_path('nodes', name=name)}/status"
        await self._send("PATCH", path, objects.build_node_status(format_now()))
        await self._send("POST", build_path("resourceslices"), objects.build_slice(name))
        self._kubelets.nodes.add(name)

    async def _remove_node(self, name: str = "") -> None:
        """Delete a node as if it never came back, with its devices; keep two unless it is named."""
        if not name and len(self._kubelets.nodes) < 3:
            return
        chosen = name or self._rng.choice(sorted(self._kubelets.nodes))
        self._kubelets.nodes.discard(chosen)
        await self._send("DELETE", build_path("nodes", name=chosen))
        await self._send("DELETE", build_path("resourceslices", name=f"{chosen}-{objects.DRIVER}"))

    async def _add_rule(self) -> None:
        if len(self._rules) >= MOST_RULES or not self._kubelets.nodes:
            return
        self._number += 1
        name, node = f"r-{self._number}", self._rng.choice(sorted(self._kubelets.nodes))
        rule = objects.build_taint_rule(name, node, f"gpu-{self._rng.randrange(objects.DEVICES)}")
        if await self._send("POST", build_path("devicetaintrules"), rule) in (0, 201):
            self._rules.append(name)

    async def _remove_rule(self, name: str = "") -> None:
        if self._rules:
            chosen = name or self._rng.choice(self._rules)
            if await self._send("DELETE", build_path("devicetaintrules", name=chosen)) != 0:
                self._rules.remove(chosen)

    async def _publish_again(self) -> None:
        """A driver publishes a new generation of its pool, sometimes with fewer devices."""
        if not self._kubelets.nodes:
            return
        node = self._rng.choice(sorted(self._kubelets.nodes))
        generation = self._generations[node] = self._generations.get(node, 1) + 1
        devices = self._rng.choice((objects.DEVICES, objects.DEVICES, objects.DEVICES - 1))
        spec = objects.build_slice(node, generation, devices)["spec"]
        path = build_path("resourceslices", name=f"{node}-{objects.DRIVER}")
        await self._send("PATCH", path, {"spec": {"pool": spec["pool"], "devices": spec["devices"]}})


def _is_odd(code: int, answer: Any) -> bool:
    """Whether a 403 is another one than a namespace that is being deleted, or a quota."""
    message = str(answer.get("message", ""))
    return code == 403 and "being terminated" not in message and "exceeded quota" not in message
