"""A small cluster as text: documents from YAML, a judge that knows three selectors, share ids in order."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.api.resource import Device
from dray.manifests import ManifestDocument, ManifestSource, read_documents
from dray.simulation.bundle import Bundle, build_bundle
from dray.simulation.file_placement import PlacementOutcome, PlacementScope, build_inventory, place_all

NOW = "2026-01-31T12:00:00Z"


def documents(text: str, name: str = "cluster.yaml") -> list[ManifestDocument]:
    return list(read_documents(ManifestSource.decode(name, dedent(text).encode())))


def bundle(text: str) -> Bundle:
    return build_bundle(documents(text), now=NOW)


def evaluator(expression: str, driver: str, device: Device) -> bool | str:
    """Knows three selectors: a driver's name, `true`, and `sized`, which fails on a device without memory."""
    if expression == "sized":
        return True if "memory" in device.capacity else "no such key: memory"
    return expression in ("true", driver)


def counted_ids() -> Callable[[], str]:
    numbers = iter(range(1, 1_000_000))
    return lambda: f"share-{next(numbers)}"


def outcomes(
    cluster: Bundle, limits: PlacementScope | None = None, **switches: bool
) -> list[PlacementOutcome]:
    gate_filter = AllocatorGateFilter.from_overrides(switches)
    return list(
        place_all(
            cluster,
            build_inventory(cluster, gate_filter, evaluator),
            gate_filter,
            new_share_id=counted_ids(),
            scope=limits,
        )
    )


def node(name: str, **labels: str) -> str:
    shown = "".join(f"\n    {key}: {value}" for key, value in labels.items())
    return f"apiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n  labels:{shown or ' {}'}\n---\n"


def slice_of(node_name: str, *devices: str, driver: str = "gpu.example.com", memory: str = "") -> str:
    capacity = f", capacity: {{memory: {{value: {memory}}}}}" if memory else ""
    listed = "".join(f"\n  - {{name: {device}{capacity}}}" for device in devices)
    return (
        "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\n"
        f"metadata:\n  name: {node_name}-{driver}\n"
        f"spec:\n  driver: {driver}\n  nodeName: {node_name}\n"
        f"  pool: {{name: {node_name}, generation: 1, resourceSliceCount: 1}}\n  devices:{listed}\n---\n"
    )


def device_class(name: str, expression: str) -> str:
    return (
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\n"
        f"metadata:\n  name: {name}\nspec:\n  selectors:\n  - cel: {{expression: {expression}}}\n---\n"
    )


def claim(name: str, *alternatives: str, count: int = 1, status: str = "") -> str:
    """A claim for one class, or for the first available of several."""
    if len(alternatives) == 1:
        ask = f"exactly: {{deviceClassName: {alternatives[0]}, count: {count}}}"
    else:
        each = ", ".join(f"{{name: {a}, deviceClassName: {a}, count: {count}}}" for a in alternatives)
        ask = f"firstAvailable: [{each}]"
    return (
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\n"
        f"metadata:\n  name: {name}\n"
        f"spec:\n  devices:\n    requests:\n    - name: r\n      {ask}\n{status}---\n"
    )


def allocated(driver: str, pool: str, device: str, node_name: str) -> str:
    return (
        "status:\n  allocation:\n    devices:\n      results:\n"
        f"      - {{request: r, driver: {driver}, pool: {pool}, device: {device}}}\n"
        "    nodeSelector:\n      nodeSelectorTerms:\n"
        f"      - matchFields: [{{key: metadata.name, operator: In, values: [{node_name}]}}]\n"
    )


def template(name: str, class_name: str) -> str:
    return (
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\n"
        f"metadata:\n  name: {name}\nspec:\n  metadata: {{labels: {{app: x}}}}\n  spec:\n    devices:\n"
        f"      requests:\n      - name: r\n        exactly: {{deviceClassName: {class_name}}}\n---\n"
    )


def pod(name: str, *, claims: str = "", templates: str = "", extra: str = "") -> str:
    """A pod; `claims` and `templates` are names separated by blanks."""
    entries = [f"{{name: {c}, resourceClaimName: {c}}}" for c in claims.split()]
    entries += [f"{{name: {t}, resourceClaimTemplateName: {t}}}" for t in templates.split()]
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n"
        f"  resourceClaims: [{', '.join(entries)}]\n{extra}---\n"
    )


def owned_by(claim_text: str, pod_name: str, uid: str = "", entry: str = "") -> str:
    """The claim of `claim` with an owner reference to a pod; with `entry`, created for that entry."""
    owner = f"  ownerReferences: [{{apiVersion: v1, kind: Pod, name: {pod_name}, uid: '{uid}'}}]\n"
    created_for = f"  annotations: {{resource.kubernetes.io/pod-claim-name: {entry}}}\n" if entry else ""
    return claim_text.replace("spec:\n", f"{owner}{created_for}spec:\n", 1)
