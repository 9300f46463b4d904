"""Workloads of a driver: the DaemonSet on the nodes, and the Deployments of its controller and webhook."""

from __future__ import annotations

from typing import Final

from dray.driver.deploy.objects import DeploymentTarget, Document, DriverObjects

_METRICS_PORT: Final = 8080
_WEBHOOK_PORT: Final = 8443
_CERTIFICATE_DIR: Final = "/etc/webhook"


def list_host_directories(target: DeploymentTarget) -> dict[str, str]:
    """List the directories of the node that a driver shares with the agent and the container runtime.

    They have the same paths in the container: the agent calls the socket at the path that the driver says.
    """
    return {
        "plugins": str(target.kubelet_dir / "plugins"),
        "plugins-registry": str(target.kubelet_dir / "plugins_registry"),
        "cdi": str(target.cdi_dir),
    }


def build_daemon_set(objects: DriverObjects) -> Document:
    """Build the DaemonSet that runs the driver on every node."""
    directories = list_host_directories(objects.target)
    flags = {"--plugins": "plugins", "--plugins-registry": "plugins-registry", "--cdi-dir": "cdi"}
    arguments = [word for flag, name in flags.items() for word in (flag, directories[name])]
    pod = _build_pod_template(objects, "node", ["run", *arguments])
    container = pod["spec"]["containers"][0]
    container["env"] += [
        _build_field_ref_env("NODE_NAME", "spec.nodeName"),
        _build_field_ref_env("POD_UID", "metadata.uid"),
    ]
    container["volumeMounts"] = [{"name": name, "mountPath": path} for name, path in directories.items()]
    container["securityContext"]["runAsUser"] = 0  # the node's directories belong to root
    pod["spec"]["volumes"] = [
        {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
        for name, path in directories.items()
    ]
    pod["spec"] |= {"priorityClassName": "system-node-critical", "tolerations": [{"operator": "Exists"}]}
    # The new pod starts before the old one stops: two instances of a driver can share a node meanwhile.
    update = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    spec = {
        "selector": {"matchLabels": objects.build_labels("node")},
        "updateStrategy": update,
        "template": pod,
    }
    return objects.build_namespaced_object("DaemonSet", "apps/v1", "node") | {"spec": spec}


def build_deployment(objects: DriverObjects, part: str, arguments: list[str], replicas: int) -> Document:
    """Build the Deployment of a part that runs anywhere in the cluster."""
    pod = _build_pod_template(objects, part, arguments)
    spec = {"replicas": replicas, "selector": {"matchLabels": objects.build_labels(part)}, "template": pod}
    return objects.build_namespaced_object("Deployment", "apps/v1", part) | {"spec": spec}


def build_webhook_deployment(objects: DriverObjects) -> Document:
    """Build the Deployment of the webhook, whose certificate is in a secret."""
    volume: Document = {"name": "certificate", "emptyDir": {"medium": "Memory"}}
    if objects.target.issues_certificate:
        arguments = [
            "--tls-secret",
            objects.webhook_secret_name,
            "--tls-service",
            objects.format_name("webhook"),
        ]
        arguments += ["--tls-configuration", objects.webhook_configuration_name]
        arguments += ["--tls-dir", _CERTIFICATE_DIR]
    else:
        volume = {"name": "certificate", "secret": {"secretName": objects.webhook_secret_name}}
        arguments = ["--certificate", f"{_CERTIFICATE_DIR}/tls.crt", "--key", f"{_CERTIFICATE_DIR}/tls.key"]
    arguments = ["webhook", "--address", f"0.0.0.0:{_WEBHOOK_PORT}", *arguments]
    deployment = build_deployment(objects, "webhook", arguments, replicas=2)
    pod = deployment["spec"]["template"]["spec"]
    container = pod["containers"][0]
    container["env"] = [_build_field_ref_env("POD_NAMESPACE", "metadata.namespace")]
    container["ports"] = [{"name": "webhook", "containerPort": _WEBHOOK_PORT}]
    for probe in ("livenessProbe", "readinessProbe"):
        container[probe]["httpGet"] |= {"port": "webhook", "scheme": "HTTPS"}
    container["volumeMounts"] = [{"name": "certificate", "mountPath": _CERTIFICATE_DIR}]
    pod["volumes"] = [volume]
    return deployment


def _build_pod_template(objects: DriverObjects, part: str, arguments: list[str]) -> Document:
    container = {
        "name": "driver",
        "image": objects.target.image,
        "args": arguments,
        "env": [
            {"name": "DRAY_METRICS_ADDRESS", "value": f"0.0.0.0:{_METRICS_PORT}"},
            {"name": "DRAY_LOG_FORMAT", "value": "json"},
            _build_field_ref_env("POD_NAMESPACE", "metadata.namespace"),
            _build_field_ref_env("POD_NAME", "metadata.name"),
        ],
        "ports": [{"name": "metrics", "containerPort": _METRICS_PORT}],
        "livenessProbe": {"httpGet": {"path": "/livez", "port": "metrics"}, "periodSeconds": 10},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "metrics"}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    spec = {"serviceAccountName": objects.format_name(part), "containers": [container]}
    return {"metadata": {"labels": objects.build_labels(part)}, "spec": spec}


def _build_field_ref_env(name: str, field: str) -> Document:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}
