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
from dray.values.names import dns_label, driver_name

Document = dict[str, Any]

ANNOTATION: Final = "dray.dev/driver"
_RBAC: Final = "rbac.authorization.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io/v1"
_DEVICES, _CLASSIC = "resource.k8s.io", "cdi.k8s.io"
_VERSIONS: Final = ["v1", "v1beta2", "v1beta1"]
_LONGEST: Final = 45
_METRICS_PORT, _WEBHOOK_PORT = 8080, 8443

MOUNTS: Final[Mapping[str, str]] = {
    "plugins": "/var/lib/kubelet/plugins",
    "plugins-registry": "/var/lib/kubelet/plugins_registry",
    "cdi": "/var/run/cdi",
}
"""Directories of the node that a driver shares with the agent and the container runtime."""

Rule = tuple[str, str, str]
"""Verbs, API group and resources of one right, each separated by commas; names behind `=`."""

_EVENTS: Final[tuple[Rule, ...]] = (
    ("create,patch", "", "events"),
    ("create,patch", "events.k8s.io", "events"),
)
_NODE: Final[tuple[Rule, ...]] = (
    ("list,watch,create,patch,delete", _DEVICES, "resourceslices"),
    ("get", "", "nodes"),
    ("get", _DEVICES, "resourceclaims"),
    ("patch", _DEVICES, "resourceclaims/status"),
    ("associated-node:patch", _DEVICES, "resourceclaims/driver=DRIVER"),
    ("list", "dray.dev", "preparations"),
)
_CLASSIC_NODE: Final[tuple[Rule, ...]] = (
    ("get", "", "nodes"),
    ("list", _CLASSIC, "resourceclaims"),
    ("list", "dray.dev", "preparations"),
)
_CONTROLLER: Final[tuple[Rule, ...]] = (
    ("list,watch,patch", _CLASSIC, "resourceclaims"),
    ("patch", _CLASSIC, "resourceclaims/status"),
    ("list,watch", _CLASSIC, "resourceclasses"),
    *_EVENTS,
)
_CLASSIC_WEBHOOK: Final[tuple[Rule, ...]] = (("get", _CLASSIC, "resourceclasses"),)
_LEADING: Final[tuple[Rule, ...]] = (("create,get,patch", "coordination.k8s.io", "leases"),)
_INVENTORY: Final[Mapping[str, Rule]] = {
    "node": ("create,get,patch", "", "configmaps"),
    "controller": ("list,watch", "", "configmaps"),
}
"""Classic drivers tell what is on a node in a config map of its name, in their namespace (`inventory`)."""


@dataclass(frozen=True)
class Cluster:
    """Where a driver shall run."""

    image: str
    namespace: str = ""
    """The driver's own; named after it when empty."""
    ca_bundle: str = ""
    """The authority of the webhook's certificate, PEM in base64; whoever issues it fills it in when empty."""


def manifests(driver: Driver, image: str, namespace: str = "", *, ca_bundle: str = "") -> list[Document]:
    """All documents, in an order in which they can be applied."""
    if not image:
        raise InputError("which image? The driver's program must be its entry point")
    if not driver.name or driver_name(driver.name):
        raise InputError(f"`{driver.name}` is not the name of a driver; expected one like `gpu.example.com`")
    made = _Manifests(driver, Cluster(image, namespace or short(driver.name), ca_bundle))
    return list(made.documents())


def short(name: str) -> str:
    """A driver's name as a label that begins with a letter: names of most objects can be made of it."""
    slug = name.replace(".", "-")
    if len(slug) > _LONGEST or not re.match("[a-z]", slug) or "-" in name:
        mark = hashlib.sha256(name.encode()).hexdigest()[:6]
        slug = f"{slug[: _LONGEST - 10].rstrip('-')}-{mark}"
    return slug if re.match("[a-z]", slug) else f"dra-{slug}"


class _Manifests:
    """The documents of one driver."""

    def __init__(self, driver: Driver, cluster: Cluster) -> None:
        self._driver, self._cluster = driver.name, cluster
        self._classic = isinstance(driver, ClassicDriver)
        self._controlled = isinstance(driver, ClassicDriver) and driver.controller is not None
        self._checked = driver.parameters is not None
        self._base = short(driver.name)
        if dns_label(cluster.namespace):
            raise InputError(f"`{cluster.namespace}` is not the name of a namespace")

    def documents(self) -> Iterator[Document]:
        yield self._named("Namespace", "v1", self._cluster.namespace, labels={_SECURITY: "privileged"})
        yield from self._part("node", _CLASSIC_NODE if self._classic else _NODE)
        yield self._daemon_set()
        if self._classic:
            if self._controlled:
                yield from self._part("controller", _CONTROLLER)
                yield self._deployment("controller", ["controller", "--elect"], replicas=2)
            yield self._class("ResourceClass", f"{_CLASSIC}/v1alpha1") | {"driverName": self._driver}
        else:
            yield from self._policy()
            yield self._device_class()
        if self._checked:
            yield from self._part("webhook", _CLASSIC_WEBHOOK if self._classic else ())
            yield self._webhook()
            yield self._service()
            yield self._webhook_configuration()

    # --- accounts and rights ---

    def _part(self, part: str, rules: Sequence[Rule]) -> Iterator[Document]:
        speaks = {} if part == "webhook" else {ANNOTATION: self._driver}
        account = self._here("ServiceAccount", "v1", part)
        if speaks:
            account["metadata"]["annotations"] = speaks
        yield account
        if rules:
            cluster_wide = f"{self._base}-{part}"
            yield self._named("ClusterRole", f"{_RBAC}/v1", cluster_wide) | {"rules": self._rules(rules)}
            binding = self._named("ClusterRoleBinding", f"{_RBAC}/v1", cluster_wide)
            yield binding | self._bound("ClusterRole", cluster_wide, part)
        own: tuple[Rule, ...] = (_INVENTORY[part],) if self._classic and part in _INVENTORY else ()
        own += _LEADING if part == "controller" else ()
        if own:
            yield self._here("Role", f"{_RBAC}/v1", part) | {"rules": self._rules(own)}
            yield self._here("RoleBinding", f"{_RBAC}/v1", part) | self._bound("Role", self._name(part), part)

    def _rules(self, rules: Sequence[Rule]) -> list[Document]:
        found = []
        for verbs, group, resources in rules:
            places, _, name = resources.partition("=")
            rule: Document = {"apiGroups": [group], "resources": places.split(","), "verbs": verbs.split(",")}
            found.append(rule | ({"resourceNames": [self._driver]} if name else {}))
        return found

    def _bound(self, kind: str, role: str, part: str) -> Document:
        account = {"kind": "ServiceAccount", "name": self._name(part), "namespace": self._cluster.namespace}
        return {"roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role}, "subjects": [account]}

    def _policy(self) -> Iterator[Document]:
        """Slices of its own node and driver: what the account of a node part may write."""
        name = f"{self._base}-slices"
        user = f"system:serviceaccount:{self._cluster.namespace}:{self._name('node')}"
        rule = {
            "apiGroups": [_DEVICES],
            "apiVersions": _VERSIONS,
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": ["resourceslices"],
            "scope": "*",  # see `_webhook_configuration`
        }
        yield self._named("ValidatingAdmissionPolicy", _ADMISSION, name) | {
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
                    {"name": "node", "expression": _TOKEN_NODE},
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
        yield self._named("ValidatingAdmissionPolicyBinding", _ADMISSION, name) | {
            "spec": {"policyName": name, "validationActions": ["Deny"]}
        }

    # --- what runs ---

    def _daemon_set(self) -> Document:
        pod = self._pod("node", ["run"])
        container = pod["spec"]["containers"][0]
        container["env"] += [_from_pod("NODE_NAME", "spec.nodeName"), _from_pod("POD_UID", "metadata.uid")]
        container["volumeMounts"] = [{"name": name, "mountPath": place} for name, place in MOUNTS.items()]
        container["securityContext"]["runAsUser"] = 0  # the node's directories belong to root
        pod["spec"]["volumes"] = [
            {"name": name, "hostPath": {"path": place, "type": "DirectoryOrCreate"}}
            for name, place in MOUNTS.items()
        ]
        pod["spec"] |= {"priorityClassName": "system-node-critical", "tolerations": [{"operator": "Exists"}]}
        # The new pod is there before the old one goes: the kit lets two instances share a node meanwhile.
        update = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        spec = {"selector": {"matchLabels": self._labels("node")}, "updateStrategy": update, "template": pod}
        return self._here("DaemonSet", "apps/v1", "node") | {"spec": spec}

    def _deployment(self, part: str, arguments: list[str], replicas: int) -> Document:
        pod = self._pod(part, arguments)
        spec = {"replicas": replicas, "selector": {"matchLabels": self._labels(part)}, "template": pod}
        return self._here("Deployment", "apps/v1", part) | {"spec": spec}

    def _webhook(self) -> Document:
        folder = "/etc/webhook"
        where = [
            "--address",
            f"0.0.0.0:{_WEBHOOK_PORT}",
            "--certificate",
            f"{folder}/tls.crt",
            "--key",
            f"{folder}/tls.key",
        ]
        made = self._deployment("webhook", ["webhook", *where], replicas=2)
        pod = made["spec"]["template"]["spec"]
        container = pod["containers"][0]
        container["env"] = []
        container["ports"] = [{"name": "webhook", "containerPort": _WEBHOOK_PORT}]
        for probe in ("livenessProbe", "readinessProbe"):
            container[probe]["httpGet"] |= {"port": "webhook", "scheme": "HTTPS"}
        container["volumeMounts"] = [{"name": "certificate", "mountPath": folder, "readOnly": True}]
        pod["volumes"] = [{"name": "certificate", "secret": {"secretName": self._name("webhook-tls")}}]
        return made

    def _pod(self, part: str, arguments: list[str]) -> Document:
        container = {
            "name": "driver",
            "image": self._cluster.image,
            "args": arguments,
            "env": [
                {"name": "DRAY_METRICS_ADDRESS", "value": f"0.0.0.0:{_METRICS_PORT}"},
                {"name": "DRAY_LOG_FORMAT", "value": "json"},
                _from_pod("POD_NAMESPACE", "metadata.namespace"),
                _from_pod("POD_NAME", "metadata.name"),
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
        spec = {"serviceAccountName": self._name(part), "containers": [container]}
        return {"metadata": {"labels": self._labels(part)}, "spec": spec}

    # --- classes and the webhook ---

    def _device_class(self) -> Document:
        selector = {"cel": {"expression": f'device.driver == "{self._driver}"'}}
        return self._class("DeviceClass", f"{_DEVICES}/v1") | {"spec": {"selectors": [selector]}}

    def _class(self, kind: str, version: str) -> Document:
        return self._named(kind, version, self._driver)

    def _service(self) -> Document:
        port = {"name": "webhook", "port": 443, "targetPort": "webhook"}
        spec = {"selector": self._labels("webhook"), "ports": [port]}
        return self._here("Service", "v1", "webhook") | {"spec": spec}

    def _webhook_configuration(self) -> Document:
        group, versions = (_CLASSIC, ["v1alpha1"]) if self._classic else (_DEVICES, _VERSIONS)
        kinds = (
            ["resourceclaims", "resourceclasses"]
            if self._classic
            else ["resourceclaims", "resourceclaimtemplates", "deviceclasses"]
        )
        rule = {
            "apiGroups": [group],
            "apiVersions": versions,
            "operations": ["CREATE", "UPDATE"],
            "resources": kinds,
            "scope": "*",  # a rule that leaves it out looks changed whenever it is applied again
        }
        service = {"namespace": self._cluster.namespace, "name": self._name("webhook"), "path": PATH}
        bundle = {"caBundle": self._cluster.ca_bundle} if self._cluster.ca_bundle else {}
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
        made = self._named("ValidatingWebhookConfiguration", _ADMISSION, f"{self._base}-parameters")
        return made | {"webhooks": [webhook]}

    # --- names ---

    def _name(self, part: str) -> str:
        return f"{self._base}-{part}"

    def _labels(self, part: str) -> dict[str, str]:
        return {"app.kubernetes.io/name": self._base, "app.kubernetes.io/component": part}

    def _named(self, kind: str, version: str, name: str, labels: Mapping[str, str] | None = None) -> Document:
        metadata = {"name": name, "labels": {"app.kubernetes.io/name": self._base, **(labels or {})}}
        return {"apiVersion": version, "kind": kind, "metadata": metadata}

    def _here(self, kind: str, version: str, part: str) -> Document:
        made = self._named(kind, version, self._name(part))
        made["metadata"]["namespace"] = self._cluster.namespace
        return made


_SECURITY: Final = "pod-security.kubernetes.io/enforce"
_TOKEN_NODE: Final = (
    'has(request.userInfo.extra) && "authentication.kubernetes.io/node-name" in request.userInfo.extra'
    ' ? request.userInfo.extra["authentication.kubernetes.io/node-name"][0] : ""'
)
"""The node that the token of a pod's account is bound to."""


def _from_pod(name: str, field: str) -> Document:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}
