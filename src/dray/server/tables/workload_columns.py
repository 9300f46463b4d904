"""Columns of the kinds that dray merely keeps: workloads, services, volumes, budgets."""

from __future__ import annotations

from typing import Any, Final

from dray.server.tables.ages import human, moment, since
from dray.server.tables.columns import (
    AGE,
    NAME,
    NONE,
    Cell,
    Column,
    Scene,
    ago,
    at,
    count,
    counts,
    entries,
    items,
    joined,
    number,
    pairs,
    shortened,
    shows,
    text,
)


def _containers(field: str, template: str = "spec.template") -> Cell:
    def cell(workload: Any, _: Scene) -> str:
        return joined(text(one, field) for one in items(workload, f"{template}.spec.containers"))

    return cell


def _selector(path: str) -> Cell:
    return lambda workload, _: pairs(entries(workload, path))


def _ready(wanted: str) -> Cell:
    def cell(workload: Any, _: Scene) -> str:
        desired = at(workload, wanted)
        return (
            f"{count(workload, 'status.readyReplicas')}/{1 if desired is None else count(workload, wanted)}"
        )

    return cell


_CONTAINERS = Column("Containers", _containers("name"), wide=True)
_IMAGES = Column("Images", _containers("image"), wide=True)
_SELECTOR = Column("Selector", _selector("spec.selector.matchLabels"), wide=True)
_READY = Column("Ready", _ready("spec.replicas"), about="Pods that are ready, of all wanted")

DEPLOYMENTS: Final = (
    NAME,
    _READY,
    Column("Up-to-date", counts("status.updatedReplicas")),
    Column("Available", counts("status.availableReplicas")),
    AGE,
    _CONTAINERS,
    _IMAGES,
    _SELECTOR,
)
REPLICA_SETS: Final = (
    NAME,
    number("Desired", "spec.replicas"),
    number("Current", "status.replicas"),
    number("Ready", "status.readyReplicas"),
    AGE,
    _CONTAINERS,
    _IMAGES,
    _SELECTOR,
)
REPLICATION_CONTROLLERS: Final = (
    *REPLICA_SETS[:-1],
    Column("Selector", _selector("spec.selector"), wide=True),
)
STATEFUL_SETS: Final = (NAME, _READY, AGE, _CONTAINERS, _IMAGES)
DAEMON_SETS: Final = (
    NAME,
    number("Desired", "status.desiredNumberScheduled"),
    number("Current", "status.currentNumberScheduled"),
    number("Ready", "status.numberReady"),
    number("Up-to-date", "status.updatedNumberScheduled"),
    number("Available", "status.numberAvailable"),
    Column("Node Selector", _selector("spec.template.spec.nodeSelector")),
    AGE,
    _CONTAINERS,
    _IMAGES,
    _SELECTOR,
)


def _job_status(job: Any, _: Scene) -> str:
    met = {text(one, "type") for one in items(job, "status.conditions") if text(one, "status") == "True"}
    if "Complete" in met:
        return "Complete"
    if "Failed" in met:
        return "Failed"
    if at(job, "metadata.deletionTimestamp") is not None:
        return "Terminating"
    ending = {
        "Suspended": "Suspended",
        "FailureTarget": "FailureTarget",
        "SuccessCriteriaMet": "SuccessCriteriaMet",
    }
    return next((word for kind, word in ending.items() if kind in met), "Running")


def _completions(job: Any, _: Scene) -> str:
    done = count(job, "status.succeeded")
    if at(job, "spec.completions") is not None:
        return f"{done}/{count(job, 'spec.completions')}"
    parallel = count(job, "spec.parallelism")
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_duration(job: Any, scene: Scene) -> str:
    begun, ended = moment(at(job, "status.startTime")), moment(at(job, "status.completionTime"))
    return "" if begun is None else human((ended or scene.now) - begun)


JOBS: Final = (
    NAME,
    Column("Status", _job_status),
    Column("Completions", _completions),
    Column("Duration", _job_duration),
    AGE,
    _CONTAINERS,
    _IMAGES,
    _SELECTOR,
)


def _last_schedule(job: Any, scene: Scene) -> str:
    last = at(job, "status.lastScheduleTime")
    return since(last, scene.now) if last else NONE


_JOB = "spec.jobTemplate.spec.template"
CRON_JOBS: Final = (
    NAME,
    Column("Schedule", shows("spec.schedule")),
    Column("Timezone", shows("spec.timeZone", NONE)),
    Column("Suspend", lambda job, _: text(job, "spec.suspend", "false").capitalize()),
    Column("Active", lambda job, _: len(items(job, "status.active")), type="integer"),
    Column("Last Schedule", _last_schedule),
    AGE,
    Column("Containers", _containers("name", _JOB), wide=True),
    Column("Images", _containers("image", _JOB), wide=True),
    Column("Selector", _selector("spec.jobTemplate.spec.selector.matchLabels"), wide=True),
)


def _outside(service: Any, _: Scene) -> str:
    balanced = items(service, "status.loadBalancer.ingress")
    found = [*(text(one, "ip") or text(one, "hostname") for one in balanced)]
    found += [str(one) for one in items(service, "spec.externalIPs")]
    if not found and text(service, "spec.type") == "LoadBalancer":
        return "<pending>"
    return joined(found) if found else text(service, "spec.externalName", NONE)


def _ports(service: Any, _: Scene) -> str:
    return joined(_port(one) for one in items(service, "spec.ports"))


def _port(port: Any) -> str:
    outer = f":{count(port, 'nodePort')}" if count(port, "nodePort") else ""
    return f"{count(port, 'port')}{outer}/{text(port, 'protocol', 'TCP')}"


SERVICES: Final = (
    NAME,
    Column("Type", shows("spec.type", "ClusterIP")),
    Column("Cluster-IP", shows("spec.clusterIP", NONE)),
    Column("External-IP", _outside),
    Column("Port(s)", _ports),
    AGE,
    Column("Selector", _selector("spec.selector"), wide=True),
)


def _endpoints(endpoints: Any, _: Scene) -> str:
    return shortened(
        [
            f"{text(address, 'ip')}:{count(port, 'port')}"
            for subset in items(endpoints, "subsets")
            for port in items(subset, "ports")
            for address in items(subset, "addresses")
        ]
    )


ENDPOINTS: Final = (NAME, Column("Endpoints", _endpoints), AGE)

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(path: str) -> Cell:
    return lambda volume, _: ",".join(_MODES.get(str(mode), str(mode)) for mode in items(volume, path))


VOLUME_CLAIMS: Final = (
    NAME,
    Column("Status", shows("status.phase", "Pending")),
    Column("Volume", shows("spec.volumeName")),
    Column("Capacity", shows("status.capacity.storage")),
    Column("Access Modes", _modes("status.accessModes")),
    Column("StorageClass", shows("spec.storageClassName")),
    Column("VolumeAttributesClass", shows("spec.volumeAttributesClassName", "<unset>")),
    AGE,
    Column("VolumeMode", shows("spec.volumeMode", "<unset>"), wide=True),
)


def _bound_claim(volume: Any, _: Scene) -> str:
    name = text(volume, "spec.claimRef.name")
    return f"{text(volume, 'spec.claimRef.namespace')}/{name}" if name else ""


VOLUMES: Final = (
    NAME,
    Column("Capacity", shows("spec.capacity.storage")),
    Column("Access Modes", _modes("spec.accessModes")),
    Column("Reclaim Policy", shows("spec.persistentVolumeReclaimPolicy")),
    Column("Status", shows("status.phase", "Pending")),
    Column("Claim", _bound_claim),
    Column("StorageClass", shows("spec.storageClassName")),
    Column("VolumeAttributesClass", shows("spec.volumeAttributesClassName", "<unset>")),
    Column("Reason", shows("status.reason")),
    AGE,
    Column("VolumeMode", shows("spec.volumeMode", "<unset>"), wide=True),
)
STORAGE_CLASSES: Final = (
    NAME,
    Column("Provisioner", shows("provisioner")),
    Column("ReclaimPolicy", shows("reclaimPolicy", "Delete")),
    Column("VolumeBindingMode", shows("volumeBindingMode", "Immediate")),
    Column("AllowVolumeExpansion", shows("allowVolumeExpansion", "false")),
    AGE,
)
STORAGE_NODES: Final = (
    NAME,
    Column("Drivers", lambda node, _: len(items(node, "spec.drivers")), type="integer"),
    AGE,
)
BUDGETS: Final = (
    NAME,
    Column("Min Available", shows("spec.minAvailable", "N/A")),
    Column("Max Unavailable", shows("spec.maxUnavailable", "N/A")),
    number("Allowed Disruptions", "status.disruptionsAllowed"),
    AGE,
)


def _scaled(scaler: Any, _: Scene) -> str:
    return f"{text(scaler, 'spec.scaleTargetRef.kind')}/{text(scaler, 'spec.scaleTargetRef.name')}"


SCALERS: Final = (
    NAME,
    Column("Reference", _scaled),
    Column("MinPods", shows("spec.minReplicas", "<unset>")),
    number("MaxPods", "spec.maxReplicas"),
    number("Replicas", "status.currentReplicas"),
    AGE,
)
INGRESSES: Final = (
    NAME,
    Column("Class", shows("spec.ingressClassName", NONE)),
    Column(
        "Hosts",
        lambda ingress, _: joined(text(rule, "host", "*") for rule in items(ingress, "spec.rules")),
    ),
    AGE,
)
POLICIES: Final = (NAME, Column("Pod-Selector", _selector("spec.podSelector.matchLabels")), AGE)
ATTACHMENTS: Final = (
    NAME,
    Column("Attacher", shows("spec.attacher")),
    Column("PV", shows("spec.source.persistentVolumeName")),
    Column("Node", shows("spec.nodeName")),
    Column("Attached", shows("status.attached", "false")),
    Column("Age", ago("metadata.creationTimestamp")),
)
