"""Columns of the opaque kinds: workloads, services, volumes, budgets."""

from __future__ import annotations

from typing import Any, Final

from dray.server.tables.ages import format_age, format_duration, parse_time
from dray.server.tables.columns import (
    AGE,
    NAME,
    NONE,
    RenderCell,
    TableColumn,
    TableContext,
    build_age_cell,
    build_number_cell,
    build_number_column,
    build_text_cell,
    format_labels,
    get_list,
    get_map,
    get_number,
    get_path,
    get_text,
    join_names,
    shorten_names,
)


def _build_containers_cell(field: str, template: str = "spec.template") -> RenderCell:
    def render_containers(workload: Any, _: TableContext) -> str:
        return join_names(get_text(one, field) for one in get_list(workload, f"{template}.spec.containers"))

    return render_containers


def _build_selector_cell(path: str) -> RenderCell:
    return lambda workload, _: format_labels(get_map(workload, path))


def _build_ready_cell(wanted_path: str) -> RenderCell:
    def render_ready(workload: Any, _: TableContext) -> str:
        desired = get_path(workload, wanted_path)
        total = 1 if desired is None else get_number(workload, wanted_path)
        return f"{get_number(workload, 'status.readyReplicas')}/{total}"

    return render_ready


_CONTAINERS = TableColumn("Containers", _build_containers_cell("name"), wide=True)
_IMAGES = TableColumn("Images", _build_containers_cell("image"), wide=True)
_SELECTOR = TableColumn("Selector", _build_selector_cell("spec.selector.matchLabels"), wide=True)
_READY = TableColumn("Ready", _build_ready_cell("spec.replicas"), about="Pods that are ready, of all wanted")

DEPLOYMENTS: Final = (
    NAME,
    _READY,
    TableColumn("Up-to-date", build_number_cell("status.updatedReplicas")),
    TableColumn("Available", build_number_cell("status.availableReplicas")),
    AGE,
    _CONTAINERS,
    _IMAGES,
    _SELECTOR,
)
REPLICA_SETS: Final = (
    NAME,
    build_number_column("Desired", "spec.replicas"),
    build_number_column("Current", "status.replicas"),
    build_number_column("Ready", "status.readyReplicas"),
    AGE,
    _CONTAINERS,
    _IMAGES,
    _SELECTOR,
)
REPLICATION_CONTROLLERS: Final = (
    *REPLICA_SETS[:-1],
    TableColumn("Selector", _build_selector_cell("spec.selector"), wide=True),
)
STATEFUL_SETS: Final = (NAME, _READY, AGE, _CONTAINERS, _IMAGES)
DAEMON_SETS: Final = (
    NAME,
    build_number_column("Desired", "status.desiredNumberScheduled"),
    build_number_column("Current", "status.currentNumberScheduled"),
    build_number_column("Ready", "status.numberReady"),
    build_number_column("Up-to-date", "status.updatedNumberScheduled"),
    build_number_column("Available", "status.numberAvailable"),
    TableColumn("Node Selector", _build_selector_cell("spec.template.spec.nodeSelector")),
    AGE,
    _CONTAINERS,
    _IMAGES,
    _SELECTOR,
)


def _render_job_status(job: Any, _: TableContext) -> str:
    met = {
        get_text(one, "type")
        for one in get_list(job, "status.conditions")
        if get_text(one, "status") == "True"
    }
    if "Complete" in met:
        return "Complete"
    if "Failed" in met:
        return "Failed"
    if get_path(job, "metadata.deletionTimestamp") is not None:
        return "Terminating"
    ending = {
        "Suspended": "Suspended",
        "FailureTarget": "FailureTarget",
        "SuccessCriteriaMet": "SuccessCriteriaMet",
    }
    return next((word for kind, word in ending.items() if kind in met), "Running")


def _render_completions(job: Any, _: TableContext) -> str:
    done = get_number(job, "status.succeeded")
    if get_path(job, "spec.completions") is not None:
        return f"{done}/{get_number(job, 'spec.completions')}"
    parallel = get_number(job, "spec.parallelism")
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _render_job_duration(job: Any, context: TableContext) -> str:
    begun, ended = (
        parse_time(get_path(job, "status.startTime")),
        parse_time(get_path(job, "status.completionTime")),
    )
    return "" if begun is None else format_duration((ended or context.now) - begun)


JOBS: Final = (
    NAME,
    TableColumn("Status", _render_job_status),
    TableColumn("Completions", _render_completions),
    TableColumn("Duration", _render_job_duration),
    AGE,
    _CONTAINERS,
    _IMAGES,
    _SELECTOR,
)


def _render_last_schedule(job: Any, context: TableContext) -> str:
    last = get_path(job, "status.lastScheduleTime")
    return format_age(last, context.now) if last else NONE


_JOB = "spec.jobTemplate.spec.template"
CRON_JOBS: Final = (
    NAME,
    TableColumn("Schedule", build_text_cell("spec.schedule")),
    TableColumn("Timezone", build_text_cell("spec.timeZone", NONE)),
    TableColumn("Suspend", lambda job, _: get_text(job, "spec.suspend", "false").capitalize()),
    TableColumn("Active", lambda job, _: len(get_list(job, "status.active")), type="integer"),
    TableColumn("Last Schedule", _render_last_schedule),
    AGE,
    TableColumn("Containers", _build_containers_cell("name", _JOB), wide=True),
    TableColumn("Images", _build_containers_cell("image", _JOB), wide=True),
    TableColumn("Selector", _build_selector_cell("spec.jobTemplate.spec.selector.matchLabels"), wide=True),
)


def _render_external_address(service: Any, _: TableContext) -> str:
    balanced = get_list(service, "status.loadBalancer.ingress")
    found = [*(get_text(one, "ip") or get_text(one, "hostname") for one in balanced)]
    found += [str(one) for one in get_list(service, "spec.externalIPs")]
    if not found and get_text(service, "spec.type") == "LoadBalancer":
        return "<pending>"
    return join_names(found) if found else get_text(service, "spec.externalName", NONE)


def _render_ports(service: Any, _: TableContext) -> str:
    return join_names(_format_port(one) for one in get_list(service, "spec.ports"))


def _format_port(port: Any) -> str:
    outer = f":{get_number(port, 'nodePort')}" if get_number(port, "nodePort") else ""
    return f"{get_number(port, 'port')}{outer}/{get_text(port, 'protocol', 'TCP')}"


SERVICES: Final = (
    NAME,
    TableColumn("Type", build_text_cell("spec.type", "ClusterIP")),
    TableColumn("Cluster-IP", build_text_cell("spec.clusterIP", NONE)),
    TableColumn("External-IP", _render_external_address),
    TableColumn("Port(s)", _render_ports),
    AGE,
    TableColumn("Selector", _build_selector_cell("spec.selector"), wide=True),
)


def _render_endpoints(endpoints: Any, _: TableContext) -> str:
    return shorten_names(
        [
            f"{get_text(address, 'ip')}:{get_number(port, 'port')}"
            for subset in get_list(endpoints, "subsets")
            for port in get_list(subset, "ports")
            for address in get_list(subset, "addresses")
        ]
    )


ENDPOINTS: Final = (NAME, TableColumn("Endpoints", _render_endpoints), AGE)

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _build_access_modes_cell(path: str) -> RenderCell:
    return lambda volume, _: ",".join(_MODES.get(str(mode), str(mode)) for mode in get_list(volume, path))


VOLUME_CLAIMS: Final = (
    NAME,
    TableColumn("Status", build_text_cell("status.phase", "Pending")),
    TableColumn("Volume", build_text_cell("spec.volumeName")),
    TableColumn("Capacity", build_text_cell("status.capacity.storage")),
    TableColumn("Access Modes", _build_access_modes_cell("status.accessModes")),
    TableColumn("StorageClass", build_text_cell("spec.storageClassName")),
    TableColumn("VolumeAttributesClass", build_text_cell("spec.volumeAttributesClassName", "<unset>")),
    AGE,
    TableColumn("VolumeMode", build_text_cell("spec.volumeMode", "<unset>"), wide=True),
)


def _render_bound_claim(volume: Any, _: TableContext) -> str:
    name = get_text(volume, "spec.claimRef.name")
    return f"{get_text(volume, 'spec.claimRef.namespace')}/{name}" if name else ""


VOLUMES: Final = (
    NAME,
    TableColumn("Capacity", build_text_cell("spec.capacity.storage")),
    TableColumn("Access Modes", _build_access_modes_cell("spec.accessModes")),
    TableColumn("Reclaim Policy", build_text_cell("spec.persistentVolumeReclaimPolicy")),
    TableColumn("Status", build_text_cell("status.phase", "Pending")),
    TableColumn("Claim", _render_bound_claim),
    TableColumn("StorageClass", build_text_cell("spec.storageClassName")),
    TableColumn("VolumeAttributesClass", build_text_cell("spec.volumeAttributesClassName", "<unset>")),
    TableColumn("Reason", build_text_cell("status.reason")),
    AGE,
    TableColumn("VolumeMode", build_text_cell("spec.volumeMode", "<unset>"), wide=True),
)
STORAGE_CLASSES: Final = (
    NAME,
    TableColumn("Provisioner", build_text_cell("provisioner")),
    TableColumn("ReclaimPolicy", build_text_cell("reclaimPolicy", "Delete")),
    TableColumn("VolumeBindingMode", build_text_cell("volumeBindingMode", "Immediate")),
    TableColumn("AllowVolumeExpansion", build_text_cell("allowVolumeExpansion", "false")),
    AGE,
)
STORAGE_NODES: Final = (
    NAME,
    TableColumn("Drivers", lambda node, _: len(get_list(node, "spec.drivers")), type="integer"),
    AGE,
)
BUDGETS: Final = (
    NAME,
    TableColumn("Min Available", build_text_cell("spec.minAvailable", "N/A")),
    TableColumn("Max Unavailable", build_text_cell("spec.maxUnavailable", "N/A")),
    build_number_column("Allowed Disruptions", "status.disruptionsAllowed"),
    AGE,
)


def _render_scale_target(scaler: Any, _: TableContext) -> str:
    return f"{get_text(scaler, 'spec.scaleTargetRef.kind')}/{get_text(scaler, 'spec.scaleTargetRef.name')}"


SCALERS: Final = (
    NAME,
    TableColumn("Reference", _render_scale_target),
    TableColumn("MinPods", build_text_cell("spec.minReplicas", "<unset>")),
    build_number_column("MaxPods", "spec.maxReplicas"),
    build_number_column("Replicas", "status.currentReplicas"),
    AGE,
)
INGRESSES: Final = (
    NAME,
    TableColumn("Class", build_text_cell("spec.ingressClassName", NONE)),
    TableColumn(
        "Hosts",
        lambda ingress, _: join_names(
            get_text(rule, "host", "*") for rule in get_list(ingress, "spec.rules")
        ),
    ),
    AGE,
)
POLICIES: Final = (
    NAME,
    TableColumn("Pod-Selector", _build_selector_cell("spec.podSelector.matchLabels")),
    AGE,
)
ATTACHMENTS: Final = (
    NAME,
    TableColumn("Attacher", build_text_cell("spec.attacher")),
    TableColumn("PV", build_text_cell("spec.source.persistentVolumeName")),
    TableColumn("Node", build_text_cell("spec.nodeName")),
    TableColumn("Attached", build_text_cell("status.attached", "false")),
    TableColumn("Age", build_age_cell("metadata.creationTimestamp")),
)
