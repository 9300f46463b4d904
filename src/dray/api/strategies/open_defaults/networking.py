"""Defaults of services, endpoints, ingresses and network policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dray.api.strategies.open_defaults.rows import (
    DefaultsRow,
    DocumentDefault,
    DocumentRewrite,
    Holder,
    fill_text,
)

_CLIENT_SECONDS: Final = 10800
_CLUSTER: Final = "Cluster"


def _has_client_affinity(spec: Mapping[str, Any]) -> bool:
    return spec.get("sessionAffinity") == "ClientIP"


def _has_cluster_address(spec: Mapping[str, Any]) -> bool:
    return spec.get("type") in ("ClusterIP", "NodePort", "LoadBalancer")


def _is_balanced(spec: Mapping[str, Any]) -> bool:
    return spec.get("type") == "LoadBalancer"


def _is_reachable_from_outside(spec: Mapping[str, Any]) -> bool:
    return spec.get("type") in ("NodePort", "LoadBalancer") or (
        spec.get("type") == "ClusterIP" and bool(spec.get("externalIPs"))
    )


def _get_port(port: Mapping[str, Any]) -> Any:
    return port.get("port")


def _drop_unused_affinity(spec: Holder) -> Holder:
    if spec.get("sessionAffinity") != "None" or "sessionAffinityConfig" not in spec:
        return spec
    return {name: value for name, value in spec.items() if name != "sessionAffinityConfig"}


def _is_headless(spec: Mapping[str, Any]) -> bool:
    return spec.get("clusterIP") == "None"


def _list_cluster_address(spec: Mapping[str, Any]) -> list[Any] | None:
    address = spec.get("clusterIP")
    return [address] if address and _has_cluster_address(spec) else None


def _set_address_modes(service: Holder) -> Holder:
    """The mode of each address of a load balancer that names none."""
    spec, status = service.get("spec"), service.get("status")
    balancer = status.get("loadBalancer") if isinstance(status, dict) else None
    ingress = balancer.get("ingress") if isinstance(balancer, dict) else None
    if not isinstance(spec, dict) or not _is_balanced(spec) or not isinstance(ingress, list):
        return service
    filled = [
        {**each, "ipMode": "VIP"}
        if isinstance(each, dict) and each.get("ip") and each.get("ipMode") is None
        else each
        for each in ingress
    ]
    if filled == ingress:
        return service
    return {**service, "status": {**status, "loadBalancer": {**balancer, "ingress": filled}}}  # type: ignore[dict-item]


SERVICE_ROWS: tuple[DefaultsRow, ...] = (
    fill_text("spec.type", "ClusterIP"),
    fill_text("spec.sessionAffinity", "None"),
    DocumentDefault(
        "spec.sessionAffinityConfig", {}, _has_client_affinity, "when `sessionAffinity` is `ClientIP`"
    ),
    DocumentRewrite(
        "spec", ("sessionAffinityConfig",), _drop_unused_affinity, "dropped when `sessionAffinity` is `None`"
    ),
    DocumentDefault("spec.sessionAffinityConfig.clientIP", {}),
    DocumentDefault("spec.sessionAffinityConfig.clientIP.timeoutSeconds", _CLIENT_SECONDS),
    fill_text("spec.ports[].protocol", "TCP"),
    fill_text("spec.ports[].targetPort", "port", compute=_get_port),
    fill_text(
        "spec.externalTrafficPolicy",
        _CLUSTER,
        when=_is_reachable_from_outside,
        about="for a node port, a load balancer or external addresses",
    ),
    DocumentDefault(
        "spec.internalTrafficPolicy", _CLUSTER, _has_cluster_address, "unless `type` is `ExternalName`"
    ),
    DocumentDefault(
        "spec.allocateLoadBalancerNodePorts", True, _is_balanced, "when `type` is `LoadBalancer`"
    ),
    fill_text(
        "spec.clusterIPs", "[clusterIP]", compute=_list_cluster_address, about="when `clusterIP` is given"
    ),
    DocumentDefault("status", {}),
    DocumentDefault("status.loadBalancer", {}),
    DocumentRewrite(
        "", ("status.loadBalancer.ingress[].ipMode",), _set_address_modes, "`VIP` for a load balancer"
    ),
)

ENDPOINTS_ROWS: tuple[DefaultsRow, ...] = (fill_text("subsets[].ports[].protocol", "TCP"),)

ENDPOINT_SLICE_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("ports[].name", ""),
    DocumentDefault("ports[].protocol", "TCP"),
    DocumentDefault("endpoints[].conditions", {}),
)

INGRESS_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("status", {}),
    DocumentDefault("status.loadBalancer", {}),
)

INGRESS_CLASS_ROWS: tuple[DefaultsRow, ...] = (DocumentDefault("spec.parameters.scope", _CLUSTER),)


def _list_policy_types(spec: Mapping[str, Any]) -> list[str]:
    return ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


NETWORK_POLICY_ROWS: tuple[DefaultsRow, ...] = (
    fill_text(
        "spec.policyTypes", ["Ingress"], compute=_list_policy_types, about="and `Egress` with rules for it"
    ),
    DocumentDefault("spec.ingress[].ports[].protocol", "TCP"),
    DocumentDefault("spec.egress[].ports[].protocol", "TCP"),
)

SERVICE_CIDR_ROWS: tuple[DefaultsRow, ...] = (DocumentDefault("status", {}),)
