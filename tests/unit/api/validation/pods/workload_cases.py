"""Workloads with the answers of Kubernetes, from `workloads.yaml`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]

PATHS = {
    "Deployment": ("apps/v1", "deployments"),
    "ReplicaSet": ("apps/v1", "replicasets"),
    "DaemonSet": ("apps/v1", "daemonsets"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "ReplicationController": ("v1", "replicationcontrollers"),
    "PodTemplate": ("v1", "podtemplates"),
    "Job": ("batch/v1", "jobs"),
    "CronJob": ("batch/v1", "cronjobs"),
}
_WITHOUT_SELECTOR = ("PodTemplate", "Job", "CronJob")


@dataclass(frozen=True)
class WorkloadCase:
    """A new workload, and why Kubernetes refuses it."""

    id: str
    path: str
    workload: Document
    causes: list[str]


def load_workloads() -> list[WorkloadCase]:
    groups = yaml.safe_load((Path(__file__).parent / "workloads.yaml").read_text())
    return [
        WorkloadCase(f"{kind}: {case['name']}", build_path(kind), build_workload(kind, case), case["causes"])
        for kind, cases in groups.items()
        for case in cases
    ]


def build_path(kind: str) -> str:
    api_version, plural = PATHS[kind]
    return f"/{'apis' if '/' in api_version else 'api'}/{api_version}/namespaces/default/{plural}"


def build_workload(kind: str, case: Document) -> Document:
    """A workload with one container, and with what a case adds to it."""
    container = {"name": "main", "image": "web:1", **case.get("container", {})}
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [container], **case.get("pod", {})},
    }
    labels = {"app": "web"}
    selector = labels if kind == "ReplicationController" else {"matchLabels": labels}
    spec: Document = {"template": template, **({} if kind in _WITHOUT_SELECTOR else {"selector": selector})}
    if kind == "StatefulSet":
        spec["serviceName"] = "web"
    given = case.get("spec", {})
    body: Document = {"spec": {} if given is None else _drop_nulls({**spec, **given})}
    if kind == "PodTemplate":
        body = {"template": template}
    if kind == "CronJob":
        body = {"spec": {"schedule": "* * * * *", "jobTemplate": body, **case.get("cron", {})}}
    metadata = {"name": "thing", "namespace": "default"}
    return {"apiVersion": PATHS[kind][0], "kind": kind, "metadata": metadata, **body}


def _drop_nulls(fields: Document) -> Document:
    return {name: value for name, value in fields.items() if value is not None}
