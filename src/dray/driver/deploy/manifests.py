"""What a cluster needs to run a driver, as documents for kubectl.

    python -m my_driver manifests --image registry.example.com/gpu:1.0 | kubectl apply -f -

Theory of operation: a driver has up to three parts, each with an account and rights of its own: one on every
node, a controller (classic drivers, KEP-3063), and a webhook when there is a schema of parameters. Rights are
those that the kit uses and no others; a test runs the kit with them. The account of the node part says by the
annotation `dray.dev/driver` whose driver it is, and a policy keeps it to slices of its own node: API servers
of dray do that by themselves, those of Kubernetes by the policy.

The certificate of the webhook is not ours to make: whoever issues certificates in the cluster puts it into
the secret that the deployment names, and the authority's into the configuration (`ca_bundle`).

Rules for this file: pure; the same driver gives the same documents.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dray.driver.base import ClassicDriver, Driver
from dray.driver.webhook.server import PATH
from dray.errors import InputError
from dray.values.names import check_dns_label, check_driver_name

Document = dict[str, Any]

DRIVER_ANNOTATION: Final = "dray.dev/driver"
_RBAC_GROUP: Final = "rbac.authorization.k8s.io"
_ADMISSION_VERSION: Final = "admissionregistration.k8s.io/v1"
_DEVICES, _CLASSIC = "resource.k8s.io", "cdi.k8s.io"
_VERSIONS: Final = ["v1", "v1beta2", "v1beta1"]
_MAX_NAME_LENGTH: Final = 45
_METRICS_PORT, _WEBHOOK_PORT = 8080, 8443

HOST_PATH_MOUNTS: Final[Mapping[str, str]] = {
    "plugins": "/var/lib/kubelet/plugins",
    "plugins-registry": "/var/lib/kubelet/plugins_registry",
    "cdi": "/var/run/cdi",
}
"""Directories of the node that a driver shares with the agent and the container runtime."""

RbacRule = tuple[str, str, str]
"""Verbs, API group and resources of one right, each separated by commas; names behind `=`."""

_EVENT_RULES: Final[tuple[RbacRule, ...]] = (
    ("create,patch", "", "events"),
    ("create,patch", "events.k8s.io", "events"),
)
_NODE_RULES: Final[tuple[RbacRule, ...]] = (
    ("list,watch,create,patch,delete", _DEVICES, "resourceslices"),
    ("get", "", "nodes"),
    ("get", _DEVICES, "resourceclaims"),
    ("patch", _DEVICES, "resourceclaims/status"),
    ("associated-node:patch", _DEVICES, "resourceclaims/driver=DRIVER"),
    ("list", "dray.dev", "preparations"),
)
_CLASSIC_NODE_RULES: Final[tuple[RbacRule, ...]] = (
    ("get", "", "nodes"),
    ("list", _CLASSIC, "resourceclaims"),
    ("list", "dray.dev", "preparations"),
)
_CONTROLLER_RULES: Final[tuple[RbacRule, ...]] = (
    ("list,watch,patch", _CLASSIC, "resourceclaims"),
    ("patch", _CLASSIC, "resourceclaims/status"),
    ("list,watch", _CLASSIC, "resourceclasses"),
    *_EVENT_RULES,
)
_CLASSIC_WEBHOOK_RULES: Final[tuple[RbacRule, ...]] = (("get", _CLASSIC, "resourceclasses"),)
_LEADER_ELECTION_RULES: Final[tuple[RbacRule, ...]] = (("create,get,patch", "coordination.k8s.io", "leases"),)
_INVENTORY_RULES: Final[Mapping[str, RbacRule]] = {
    "node": ("create,get,patch", "", "configmaps"),
    "controller": ("list,watch", "", "configmaps"),
}
"""Classic drivers tell what is on a node in a config map of its name, in their namespace (`inventory`)."""


@dataclass(frozen=True)
class DeploymentTarget:
    """Where a driver shall run."""

    image: str
    namespace: str = ""
    """The driver's own; named after it when empty."""
    ca_bundle: str = ""
    """The authority of the webhook's certificate, PEM in base64; whoever issues it fills it in when empty."""


def build_manifests(
    driver: Driver, image: str, namespace: str = "", *, ca_bundle: str = ""
) -> list[Document]:
    """All documents, in an order in which they can be applied."""
    if not image:
        raise InputError("which image? The driver's program must be its entry point")
    if not driver.name or check_driver_name(driver.name):
        raise InputError(f"`{driver.name}` is not the name of a driver; expected one like `gpu.example.com`")
    made = _ManifestBuilder(
        driver, DeploymentTarget(image, namespace or shorten_driver_name(driver.name), ca_bundle)
    )
    return list(made.build_documents())


def shorten_driver_name(name: str) -> str:
    """A driver's name as a label that begins with a letter: names of most objects can be made of it."""
    slug = name.replace(".", "-")
    if len(slug) > _MAX_NAME_LENGTH or not re.match("[a-z]", slug) or "-" in name:
        mark = hashlib.sha256(name.encode()).hexdigest()[:6]
        slug = f"{slug[: _MAX_NAME_LENGTH - 10].rstrip('-')}-{mark}"
    return slug if re.match("[a-z]", slug) else f"dra-{slug}"


class _ManifestBuilder:
    """The documents of one driver."""

    def __init__(self, driver: Driver, target: DeploymentTarget) -> None:
        self._driver, self._target = driver.name, target
        self._is_classic = isinstance(driver, ClassicDriver)
        self._has_controller = isinstance(driver, ClassicDriver) and driver.controller is not None
        self._has_webhook = driver.parameters is not None
        self._base_name = shorten_driver_name(driver.name)
        if check_dns_label(target.namespace):
            raise InputError(f"`{target.namespace}` is not the name of a namespace")

    def build_documents(self) -> Iterator[Document]:
        yield self._build_object(
            "Namespace", "v1", self._target.namespace, labels={_POD_SECURITY_LABEL: "privileged"}
        )
        yield from self._build_account("node", _CLASSIC_NODE_RULES if self._is_classic else _NODE_RULES)
        yield self._build_daemon_set()
        if self._is_classic:
            if self._has_controller:
                yield from self._build_account("controller", _CONTROLLER_RULES)
                yield self._build_deployment("controller", ["controller", "--elect"], replicas=2)
            yield self._build_class("ResourceClass", f"{_CLASSIC}/v1alpha1") | {"driverName": self._driver}
        else:
            yield from self._build_slice_policy()
            yield self._build_device_class()
        if self._has_webhook:
            yield from self._build_account("webhook", _CLASSIC_WEBHOOK_RULES if self._is_classic else ())
            yield self._build_webhook_deployment()
            yield self._build_service()
            yield self._build_webhook_configuration()

    # --- accounts and rights ---

    def _build_account(self, part: str, rules: Sequence[RbacRule]) -> Iterator[Document]:
        speaks = {} if part == "webhook" else {DRIVER_ANNOTATION: self._driver}
        account = self._build_namespaced_object("ServiceAccount", "v1", part)
        if speaks:
            account["metadata"]["annotations"] = speaks
        yield account
        if rules:
            cluster_wide = f"{self._base_name}-{part}"
            yield self._build_object("ClusterRole", f"{_RBAC_GROUP}/v1", cluster_wide) | {
                "rules": self._build_rules(rules)
            }
            binding = self._build_object("ClusterRoleBinding", f"{_RBAC_GROUP}/v1", cluster_wide)
            yield binding | self._build_role_ref("ClusterRole", cluster_wide, part)
        own: tuple[RbacRule, ...] = (
            (_INVENTORY_RULES[part],) if self._is_classic and part in _INVENTORY_RULES else ()
        )
        own += _LEADER_ELECTION_RULES if part == "controller" else ()
        if own:
            yield self._build_namespaced_object("Role", f"{_RBAC_GROUP}/v1", part) | {
                "rules": self._build_rules(own)
            }
            yield self._build_namespaced_object(
                "RoleBinding", f"{_RBAC_GROUP}/v1", part
            ) | self._build_role_ref("Role", self._format_name(part), part)

    def _build_rules(self, rules: Sequence[RbacRule]) -> list[Document]:
        found = []
        for verbs, group, resources in rules:
            places, _, name = resources.partition("=")
            rule: Document = {"apiGroups": [group], "resources": places.split(","), "verbs": verbs.split(",")}
            found.append(rule | ({"resourceNames": [self._driver]} if name else {}))
        return found

    def _build_role_ref(self, kind: str, role: str, part: str) -> Document:
        account = {
            "kind": "ServiceAccount",
            "name": self._format_name(part),
            "namespace": self._target.namespace,
        }
        return {"roleRef": {"apiGroup": _RBAC_GROUP, "kind": kind, "name": role}, "subjects": [account]}

    def _build_slice_policy(self) -> Iterator[Document]:
        """Slices of its own node and driver: what the account of a node part may write."""
        name = f"{self._base_name}-slices"
        user = f"system:serviceaccount:{self._target.namespace}:{self._format_name('node')}"
        rule = {
            "apiGroups": [_DEVICES],
            "apiVersions": _VERSIONS,
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": ["resourceslices"],
            "scope": "*",  # see `_build_webhook_configuration`
        }
        yield self._build_object("ValidatingAdmissionPolicy", _ADMISSION_VERSION, name) | {
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule]},
                "matchConditions": [
                    {"name": "is-the-driver", "expression": f'request.userInfo.username == "{user}"'}
                ],
                "variables": [
                    {
                        "name": "spec",
                        "expression": 'request.operation == "DELETE" ? oldObject.spec : object.spec',
                    },
                    {"name": "node", "expression": _TOKEN_NODE_EXPRESSION},
                ],
                "validations": [
                    {
                        "expression": f'variables.spec.driver == "{self._driver}"',
                        "message": f"only slices of driver {self._driver} may be written by its account",
                    },
                    {
                        "expression": 'variables.node != "" && has(variables.spec.nodeName)'
                        " && variables.spec.nodeName == variables.node",
                        "message": "only slices of the node that the pod runs on may be written",
                    },
                ],
            }
        }
        yield self._build_object("ValidatingAdmissionPolicyBinding", _ADMISSION_VERSION, name) | {
            "spec": {"policyName": name, "validationActions": ["Deny"]}
        }

    # --- what runs ---

    def _build_daemon_set(self) -> Document:
        pod = self._build_pod_template("node", ["run"])
        container = pod["spec"]["containers"][0]
        container["env"] += [
            _build_field_ref_env("NODE_NAME", "spec.nodeName"),
            _build_field_ref_env("POD_UID", "metadata.uid"),
        ]
        container["volumeMounts"] = [
            {"name": name, "mountPath": place} for name, place in HOST_PATH_MOUNTS.items()
        ]
        container["securityContext"]["runAsUser"] = 0  # the node's directories belong to root
        pod["spec"]["volumes"] = [
            {"name": name, "hostPath": {"path": place, "type": "DirectoryOrCreate"}}
            for name, place in HOST_PATH_MOUNTS.items()
        ]
        pod["spec"] |= {"priorityClassName": "system-node-critical", "tolerations": [{"operator": "Exists"}]}
        # The new pod is there before the old one goes: the kit lets two instances share a node meanwhile.
        update = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        spec = {
            "selector": {"matchLabels": self._build_labels("node")},
            "updateStrategy": update,
            "template": pod,
        }
        return self._build_namespaced_object("DaemonSet", "apps/v1", "node") | {"spec": spec}

    def _build_deployment(self, part: str, arguments: list[str], replicas: int) -> Document:
        pod = self._build_pod_template(part, arguments)
        spec = {"replicas": replicas, "selector": {"matchLabels": self._build_labels(part)}, "template": pod}
        return self._build_namespaced_object("Deployment", "apps/v1", part) | {"spec": spec}

    def _build_webhook_deployment(self) -> Document:
        folder = "/etc/webhook"
        where = [
            "--address",
            f"0.0.0.0:{_WEBHOOK_PORT}",
            "--certificate",
            f"{folder}/tls.crt",
            "--key",
            f"{folder}/tls.key",
        ]
        made = self._build_deployment("webhook", ["webhook", *where], replicas=2)
        pod = made["spec"]["template"]["spec"]
        container = pod["containers"][0]
        container["env"] = []
        container["ports"] = [{"name": "webhook", "containerPort": _WEBHOOK_PORT}]
        for probe in ("livenessProbe", "readinessProbe"):
            container[probe]["httpGet"] |= {"port": "webhook", "scheme": "HTTPS"}
        container["volumeMounts"] = [{"name": "certificate", "mountPath": folder, "readOnly": True}]
        pod["volumes"] = [{"name": "certificate", "secret": {"secretName": self._format_name("webhook-tls")}}]
        return made

    def _build_pod_template(self, part: str, arguments: list[str]) -> Document:
        container = {
            "name": "driver",
            "image": self._target.image,
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
        spec = {"serviceAccountName": self._format_name(part), "containers": [container]}
        return {"metadata": {"labels": self._build_labels(part)}, "spec": spec}

    # --- classes and the webhook ---

    def _build_device_class(self) -> Document:
        selector = {"cel": {"expression": f'device.driver == "{self._driver}"'}}
        return self._build_class("DeviceClass", f"{_DEVICES}/v1") | {"spec": {"selectors": [selector]}}

    def _build_class(self, kind: str, version: str) -> Document:
        return self._build_object(kind, version, self._driver)

    def _build_service(self) -> Document:
        port = {"name": "webhook", "port": 443, "targetPort": "webhook"}
        spec = {"selector": self._build_labels("webhook"), "ports": [port]}
        return self._build_namespaced_object("Service", "v1", "webhook") | {"spec": spec}

    def _build_webhook_configuration(self) -> Document:
        group, versions = (_CLASSIC, ["v1alpha1"]) if self._is_classic else (_DEVICES, _VERSIONS)
        kinds = (
            ["resourceclaims", "resourceclasses"]
            if self._is_classic
            else ["resourceclaims", "resourceclaimtemplates", "deviceclasses"]
        )
        rule = {
            "apiGroups": [group],
            "apiVersions": versions,
            "operations": ["CREATE", "UPDATE"],
            "resources": kinds,
            "scope": "*",  # a rule that leaves it out looks changed whenever it is applied again
        }
        service = {"namespace": self._target.namespace, "name": self._format_name("webhook"), "path": PATH}
        bundle = {"caBundle": self._target.ca_bundle} if self._target.ca_bundle else {}
        webhook = {
            "name": f"parameters.{self._driver}",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            # Parameters are checked again when they are used: a webhook that is away must not stop a cluster.
            "failurePolicy": "Ignore",
            "timeoutSeconds": 5,
            "clientConfig": {"service": service} | bundle,
            "rules": [rule],
        }
        made = self._build_object(
            "ValidatingWebhookConfiguration", _ADMISSION_VERSION, f"{self._base_name}-parameters"
        )
        return made | {"webhooks": [webhook]}

    # --- names ---

    def _format_name(self, part: str) -> str:
        return f"{self._base_name}-{part}"

    def _build_labels(self, part: str) -> dict[str, str]:
        return {"app.kubernetes.io/name": self._base_name, "app.kubernetes.io/component": part}

    def _build_object(
        self, kind: str, version: str, name: str, labels: Mapping[str, str] | None = None
    ) -> Document:
        metadata = {"name": name, "labels": {"app.kubernetes.io/name": self._base_name, **(labels or {})}}
        return {"apiVersion": version, "kind": kind, "metadata": metadata}

    def _build_namespaced_object(self, kind: str, version: str, part: str) -> Document:
        made = self._build_object(kind, version, self._format_name(part))
        made["metadata"]["namespace"] = self._target.namespace
        return made


_POD_SECURITY_LABEL: Final = "pod-security.kubernetes.io/enforce"
_TOKEN_NODE_EXPRESSION: Final = (
    'has(request.userInfo.extra) && "authentication.kubernetes.io/node-name" in request.userInfo.extra'
    ' ? request.userInfo.extra["authentication.kubernetes.io/node-name"][0] : ""'
)
"""The node that the token of a pod's account is bound to."""


def _build_field_ref_env(name: str, field: str) -> Document:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}
