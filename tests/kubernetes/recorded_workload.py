"""A workload in which scheduler, controllers, kubelet and a Go driver write all kinds they ever write."""

from __future__ import annotations

from typing import Any

from tests.contract.documents import claim, device_class, namespace
from tests.kubernetes.images import IMAGE

Document = dict[str, Any]
NAMESPACE = "work"
DRIVER = "test-driver.cdi.k8s.io"
_SLEEP = ["sh", "-c", "sleep 600"]


def _build(version: str, kind: str, name: str, spec: Document, **more: Any) -> Document:
    metadata = {"name": name, "namespace": NAMESPACE, **more.pop("metadata", {})}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": metadata,
        **({"spec": spec} if spec else {}),
        **more,
    }


def _build_pod_spec(command: list[str], claims: tuple[Document, ...] = (), **more: Any) -> Document:
    container: Document = {"name": "main", "image": IMAGE, "command": command}
    if claims:
        container["resources"] = {"claims": [{"name": entry["name"]} for entry in claims]}
        more["resourceClaims"] = list(claims)
    return {"containers": [container], "terminationGracePeriodSeconds": 1, **more}


def _build_workload(version: str, kind: str, name: str, command: list[str], **spec: Any) -> Document:
    template = {"metadata": {"labels": {"of": name}}, "spec": _build_pod_spec(command)}
    if kind in ("Job", "CronJob"):
        template["spec"]["restartPolicy"] = "Never"
    else:
        spec["selector"] = {"matchLabels": {"of": name}} if kind != "ReplicationController" else {"of": name}
    return _build(version, kind, name, {**spec, "template": template})


def build_claims() -> list[Document]:
    """A class, a template, a claim to share with parameters, and pods that use them."""
    parameters = {"opaque": {"driver": DRIVER, "parameters": {}}}
    selected = device_class("test")
    selected["spec"] = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    asked = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "test"}}]}}
    shared = claim("shared", NAMESPACE, requests=[{"name": "gpu", "exactly": {"deviceClassName": "test"}}])
    shared["spec"]["devices"]["config"] = [parameters]
    own = {"name": "own", "resourceClaimTemplateName": "template"}
    used = {"name": "shared", "resourceClaimName": "shared"}
    many = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "test", "count": 9}}]}}
    return [
        namespace(NAMESPACE),
        selected,
        _build("resource.k8s.io/v1", "ResourceClaimTemplate", "template", {"spec": asked}),
        _build("resource.k8s.io/v1", "ResourceClaimTemplate", "many", {"spec": many}),
        shared,
        _build("v1", "Pod", "own", _build_pod_spec(_SLEEP, (own,))),
        _build("v1", "Pod", "both", _build_pod_spec(_SLEEP, (own, used))),
        _build(
            "v1",
            "Pod",
            "waits",
            _build_pod_spec(_SLEEP, ({"name": "m", "resourceClaimTemplateName": "many"},)),
        ),
    ]


def build_workloads() -> list[Document]:
    """One of each kind that controllers work on."""
    job = _build_workload("batch/v1", "Job", "job", ["true"])
    failing = _build_workload("batch/v1", "Job", "failing", ["false"], backoffLimit=0)
    cron = {"schedule": "* * * * *", "jobTemplate": {"spec": job["spec"]}}
    selector = {"matchLabels": {"of": "deployment"}}
    wanted = {"type": "Utilization", "averageUtilization": 50}
    metrics = {"type": "Resource", "resource": {"name": "cpu", "target": wanted}}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "deployment"}
    return [
        _build_workload("apps/v1", "Deployment", "deployment", _SLEEP, replicas=1),
        _build_workload("apps/v1", "StatefulSet", "stateful", _SLEEP, serviceName="service"),
        _build_workload("apps/v1", "DaemonSet", "daemons", _SLEEP),
        _build_workload("v1", "ReplicationController", "old", _SLEEP, replicas=1),
        job,
        failing,
        _build("batch/v1", "CronJob", "cron", cron),
        _build("v1", "Service", "service", {"selector": selector["matchLabels"], "ports": [{"port": 80}]}),
        _build("policy/v1", "PodDisruptionBudget", "budget", {"minAvailable": 1, "selector": selector}),
        _build(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            "scaler",
            {"maxReplicas": 2, "scaleTargetRef": target, "metrics": [metrics]},
        ),
        _build("v1", "ResourceQuota", "quota", {"hard": {"pods": "30", "count/configmaps": "20"}}),
        *_build_mirrored_service(),
        *_build_volumes(),
    ]


def _build_mirrored_service() -> list[Document]:
    """A service without a selector, whose endpoints are mirrored."""
    subsets = [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}]}]
    return [
        _build("v1", "Service", "outside", {"ports": [{"port": 80}]}),
        _build("v1", "Endpoints", "outside", {}, subsets=subsets),
    ]


def _build_volumes() -> list[Document]:
    """A volume and a claim for it, and a pod with a token and a limited life."""
    amount = {"storage": "1Gi"}
    volume = {
        "capacity": amount,
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/none"},
        "storageClassName": "manual",
    }
    asked = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "manual",
        "resources": {"requests": amount},
    }
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600, "audience": "test"}}
    mounted = _build_pod_spec(_SLEEP, volumes=[{"name": "t", "projected": {"sources": [token]}}])
    mounted["containers"][0]["volumeMounts"] = [{"name": "t", "mountPath": "/token"}]
    persistent = _build("v1", "PersistentVolume", "volume", volume)
    del persistent["metadata"]["namespace"]
    return [
        persistent,
        _build("v1", "PersistentVolumeClaim", "volume", asked),
        _build("v1", "Pod", "with-token", mounted | {"serviceAccountName": "default"}),
        _build("v1", "Pod", "short", _build_pod_spec(_SLEEP, activeDeadlineSeconds=5)),
    ]


def build_preemption(node: str) -> list[Document]:
    """A pod that uses most of the node, and one that is more important."""
    important = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    made = [important | {"metadata": {"name": "important"}}]
    for name, priority in (("usual", ""), ("important", "important")):
        spec = _build_pod_spec(_SLEEP, nodeSelector={"kubernetes.io/hostname": node})
        if priority:
            spec["priorityClassName"] = priority
        spec["containers"][0]["resources"] = {"requests": {"cpu": "1200m"}}
        made.append(_build("v1", "Pod", name, spec))
    return made


def build_taint_rule(node: str, device: str) -> Document:
    taint = {"key": "example.com/broken", "effect": "NoExecute"}
    spec = {"deviceSelector": {"driver": DRIVER, "pool": node, "device": device}, "taint": taint}
    rule = _build("resource.k8s.io/v1", "DeviceTaintRule", "broken", spec)
    del rule["metadata"]["namespace"]
    return rule


def build_aggregated_role() -> list[Document]:
    """A role that the controller fills, and a policy that it checks."""
    chosen = {"clusterRoleSelectors": [{"matchLabels": {"example.com/part": "yes"}}]}
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    part = {"name": "part", "labels": {"example.com/part": "yes"}}
    matched = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["deployments"],
    }
    policy = {
        "matchConstraints": {"resourceRules": [matched]},
        "validations": [{"expression": "object.spec.replicas < 100"}],
    }
    return [
        kind | {"metadata": part, "rules": [rule]},
        kind | {"metadata": {"name": "whole"}, "aggregationRule": chosen, "rules": []},
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "few"},
            "spec": policy,
        },
    ]
