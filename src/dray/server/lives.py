"""What the server itself does to objects when they come, change and go, as tables by kind.

Theory of operation: every object gets a name, an identity and a time of birth; beyond that, kinds differ in
few ways, and each way is a table here: which count their generations, which are born with a status, which get
defaults that other components rely on. Closed kinds have their defaults in `api.defaults`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from dray.api.kinds import Kind
from dray.server.auth.noderules import MIRROR
from dray.server.drafts import Draft

Document = dict[str, Any]
Named = tuple[str, str]

_RBAC: Final = "rbac.authorization.k8s.io"

UNCOUNTED: Final[frozenset[Named]] = frozenset(
    {
        ("resource.k8s.io", "ResourceClaim"),
        ("resource.k8s.io", "ResourceClaimTemplate"),
        ("", "Namespace"),
        ("", "Node"),
        ("", "ConfigMap"),
        ("", "Secret"),
        ("", "ServiceAccount"),
        ("", "Event"),
        ("", "ResourceQuota"),
        ("coordination.k8s.io", "Lease"),
        *(
            ("rbac.authorization.k8s.io", f"{scope}Role{what}")
            for scope in ("", "Cluster")
            for what in ("", "Binding")
        ),
    }
)
"""Kinds whose generation nobody counts."""

BORN_WITH_STATUS: Final[frozenset[Named]] = frozenset({("", "Node")})
"""Kinds that may bring a status of their own."""

MADE_BY_UPDATE: Final[frozenset[Named]] = frozenset({("coordination.k8s.io", "Lease"), ("", "Event")})
"""Kinds that a PUT creates when they are absent."""

TOLD_WHEN_GONE: Final[frozenset[Named]] = frozenset(
    {
        ("", "Pod"),
        ("", "ServiceAccount"),
        ("", "Service"),
        ("resource.k8s.io", "ResourceClaim"),
        ("resource.k8s.io", "ResourceClaimTemplate"),
        ("resource.k8s.io", "ResourceSlice"),
        ("resource.k8s.io", "DeviceClass"),
        ("cdi.k8s.io", "ResourceClaim"),
    }
)
"""Kinds whose deletion is answered with the object itself."""

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
KUBERNETES: Final = "kubernetes"


def named(kind: Kind) -> Named:
    return kind.group, kind.name


def counts_generations(kind: Kind) -> bool:
    return named(kind) not in UNCOUNTED


def has_status(kind: Kind) -> bool:
    return "status" in kind.subresources


def newborn(draft: Draft) -> Draft:
    """A draft as its kind is born: status taken away or set, defaults of open kinds filled in."""
    if has_status(draft.kind) and named(draft.kind) not in BORN_WITH_STATUS:
        draft = draft.with_status_of(None)
    birth = _BIRTHS.get(named(draft.kind))
    return draft if birth is None else Draft.of_document(birth(draft.document))


def grown(draft: Draft, before: Draft) -> Draft:
    """A draft that follows a stored object, with what its kind does not let go."""
    growth = _GROWTHS.get(named(draft.kind))
    return draft if growth is None else Draft.of_document(growth(draft.document, before.document))


def _pod(pod: Document) -> Document:
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    filled = {**_POD, **_account(pod, spec), **_set(spec)}
    filled["tolerations"] = _with_patience(filled.get("tolerations"))
    for name in ("containers", "initContainers"):
        if isinstance(filled.get(name), list):
            filled[name] = [_container(each) for each in filled[name]]
    return {**pod, "spec": filled, "status": {"phase": "Pending", "qosClass": _quality(filled)}}


def _account(pod: Document, spec: Document) -> Document:
    """The account a pod runs as; a pod that mirrors what a node runs by itself runs as none."""
    if MIRROR in (pod["metadata"].get("annotations") or {}):
        return {}
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    return {"serviceAccountName": account, "serviceAccount": account}


_POD: Mapping[str, Any] = MappingProxyType(
    {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
)

_CONTAINER: Mapping[str, Any] = MappingProxyType(
    {
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
)

_PATIENCE_SECONDS: Final = 300
_TROUBLES: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def _set(document: Mapping[str, Any]) -> Document:
    return {name: value for name, value in document.items() if value is not None}


def _with_patience(tolerations: Any) -> Any:
    """A pod stays a while on a node in trouble, unless it says otherwise."""
    given = tolerations if isinstance(tolerations, list) else []
    endured = [each.get("key") for each in given if isinstance(each, dict)]
    patience = [
        {
            "key": trouble,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _PATIENCE_SECONDS,
        }
        for trouble in _TROUBLES
        if trouble not in endured
    ]
    return [*given, *patience]


def _container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    image = str(container.get("image", ""))
    tag = image.rpartition("/")[2].partition(":")[2]
    pull = "Always" if "@" not in image and tag in ("", "latest") else "IfNotPresent"
    return {**_CONTAINER, "imagePullPolicy": pull, **_set(container)}


def _quality(spec: Mapping[str, Any]) -> str:
    """The class of service a pod's requests and limits amount to."""
    everything = [
        each.get("resources") or {}
        for name in ("containers", "initContainers")
        for each in spec.get(name) or ()
        if isinstance(each, dict)
    ]
    asked = [each.get("requests") or {} for each in everything]
    limits = [each.get("limits") or {} for each in everything]
    if not any(asked) and not any(limits):
        return "BestEffort"
    settled = all(
        {"cpu", "memory"} <= limit.keys() and all(ask.get(name, limit[name]) == limit[name] for name in limit)
        for ask, limit in zip(asked, limits, strict=True)
    )
    return "Guaranteed" if settled else "Burstable"


def _namespace(namespace: Document) -> Document:
    metadata = namespace["metadata"]
    labels = {**(metadata.get("labels") or {}), NAMESPACE_LABEL: metadata.get("name", "")}
    spec = {**(namespace.get("spec") or {})}
    spec["finalizers"] = list(dict.fromkeys([*(spec.get("finalizers") or ()), KUBERNETES]))
    return {
        **namespace,
        "metadata": {**metadata, "labels": labels},
        "spec": spec,
        "status": {"phase": "Active"},
    }


def _namespace_later(namespace: Document, before: Document) -> Document:
    """A namespace goes after all that is in it: who must agree is changed by `finalize` alone."""
    metadata = namespace["metadata"]
    labels = {**(metadata.get("labels") or {}), NAMESPACE_LABEL: before["metadata"]["name"]}
    spec = {**(namespace.get("spec") or {})}
    spec["finalizers"] = (before.get("spec") or {}).get("finalizers") or []
    return {**namespace, "metadata": {**metadata, "labels": labels}, "spec": spec}


_BIRTHS: Mapping[Named, Callable[[Document], Document]] = MappingProxyType(
    {("", "Pod"): _pod, ("", "Namespace"): _namespace}
)

_GROWTHS: Mapping[Named, Callable[[Document, Document], Document]] = MappingProxyType(
    {("", "Namespace"): _namespace_later}
)
