"""The objects of the churn: nodes with devices, namespaces with what pods need, and workloads."""

from __future__ import annotations

from typing import Any

from tests.contract.documents import claim, device_class, namespace, request, resource_slice

Document = dict[str, Any]

DRIVER = CLASS = "gpu.example.com"
DEVICES = 4
"""Devices of a node."""
ENDS = "churn.example.com/ends"
"""The label of pods that end by themselves, with the phase in which they do."""
DRIVER_STATUS = "churn.example.com/driver-status"
"""The label of pods whose driver writes about the devices in their claims."""

_GROUPS = {
    "deployments": "apps/v1",
    "replicasets": "apps/v1",
    "statefulsets": "apps/v1",
    "daemonsets": "apps/v1",
    "jobs": "batch/v1",
    "cronjobs": "batch/v1",
    "resourceclaims": "resource.k8s.io/v1",
    "resourceclaimtemplates": "resource.k8s.io/v1",
    "resourceslices": "resource.k8s.io/v1",
    "deviceclasses": "resource.k8s.io/v1",
    "devicetaintrules": "resource.k8s.io/v1",
    "poddisruptionbudgets": "policy/v1",
    "leases": "coordination.k8s.io/v1",
}
_KINDS = {
    "deployments": "Deployment",
    "statefulsets": "StatefulSet",
    "daemonsets": "DaemonSet",
    "jobs": "Job",
    "cronjobs": "CronJob",
}


def build_path(plural: str, namespace: str = "", name: str = "") -> str:
    """The path of a collection, or of one object."""
    group = _GROUPS.get(plural)
    within = f"/namespaces/{namespace}" if namespace else ""
    return (f"/apis/{group}" if group else "/api/v1") + f"{within}/{plural}" + (f"/{name}" if name else "")


def build_slice(node: str, generation: int = 1, devices: int = DEVICES) -> Document:
    made: Document = resource_slice(f"{node}-{DRIVER}", node, devices)
    made["spec"]["pool"]["generation"] = generation
    return made


def build_node(name: str) -> Document:
    labels = {"kubernetes.io/hostname": name, "churn.example.com/node": "true"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def build_node_status(now: str) -> Document:
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}
    return {"status": {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}}


def build_cluster_objects() -> list[tuple[str, Document]]:
    return [("deviceclasses", device_class(CLASS))]


def build_namespace_objects(name: str) -> list[tuple[str, Document]]:
    """A namespace with templates, claims to share, a quota, a service, a budget, and a config map."""
    place = {"namespace": name}
    quota = {"hard": {"pods": "40", "count/resourceclaims.resource.k8s.io": "40"}}
    quota["hard"][f"{CLASS}.deviceclass.resource.k8s.io/devices"] = "20"
    selector = {"app": "web"}
    made: list[tuple[str, Document]] = [("namespaces", namespace(name))]
    made += [("resourceclaimtemplates", _build_template(name, count)) for count in (1, 2, DEVICES + 1)]
    made += [("resourceclaims", claim(f"shared-{number}", name)) for number in range(2)]
    made.append(
        ("resourcequotas", _build("v1", "ResourceQuota", {"name": "quota", **place}, {"spec": quota}))
    )
    service = {"spec": {"selector": selector, "clusterIP": "None", "ports": [{"port": 80}]}}
    made.append(("services", _build("v1", "Service", {"name": "web", **place}, service)))
    budget = {"spec": {"minAvailable": 1, "selector": {"matchLabels": selector}}}
    made.append(
        ("poddisruptionbudgets", _build("policy/v1", "PodDisruptionBudget", {"name": "web", **place}, budget))
    )
    made.append(
        ("configmaps", _build("v1", "ConfigMap", {"name": "settings", **place}, {"data": {"a": "b"}}))
    )
    return made


def _build_template(namespace: str, count: int) -> Document:
    metadata = {"name": f"gpus-{count}", "namespace": namespace}
    asked = {"devices": {"requests": [request(count=count)]}}
    spec = {"metadata": {"labels": {"gpus": str(count)}}, "spec": asked}
    return _build("resource.k8s.io/v1", "ResourceClaimTemplate", metadata, {"spec": spec})


def _build(version: str, kind: str, metadata: Document, body: Document) -> Document:
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


def build_pod_spec(*claims: str, restart: str = "Always") -> Document:
    """A pod that uses claims: `gpus-1` makes one from that template, `shared-0` names a claim."""
    entries: list[Document] = []
    for number, source in enumerate(claims):
        field = "resourceClaimTemplateName" if source.startswith("gpus-") else "resourceClaimName"
        entries.append({"name": f"c{number}", field: source})
    container: Document = {"name": "main", "image": "pause:3"}
    container["resources"] = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "32Mi"}}
    container["resources"]["claims"] = [{"name": entry["name"]} for entry in entries]
    spec: Document = {"containers": [container], "terminationGracePeriodSeconds": 1, "restartPolicy": restart}
    return {**spec, "resourceClaims": entries} if entries else spec


def build_pod(name: str, namespace: str, spec: Document, labels: Document) -> Document:
    return _build("v1", "Pod", {"name": name, "namespace": namespace, "labels": labels}, {"spec": spec})


def build_workload(plural: str, name: str, namespace: str, pod: Document, **more: Any) -> Document:
    """A Deployment, StatefulSet, DaemonSet, Job or CronJob; only what has no default is set."""
    labels = {"app": "web", "of": name, **more.pop("labels", {})}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec: Document = {"template": template, **more}
    if plural == "cronjobs":
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": spec}}
    elif plural != "jobs":
        spec["selector"] = {"matchLabels": {"of": name}}
    if plural == "statefulsets":
        spec["serviceName"] = "web"
    metadata = {"name": name, "namespace": namespace}
    return _build(_GROUPS[plural], _KINDS[plural], metadata, {"spec": spec})


def build_taint_rule(name: str, node: str, device: str) -> Document:
    taint = {"key": "churn.example.com/broken", "value": "yes", "effect": "NoExecute"}
    selector = {"driver": DRIVER, "pool": node, "device": device}
    body = {"spec": {"deviceSelector": selector, "taint": taint}}
    return _build("resource.k8s.io/v1", "DeviceTaintRule", {"name": name}, body)
