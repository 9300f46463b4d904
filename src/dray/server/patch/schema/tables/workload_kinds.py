"""The kinds that make pods: apps, batch, autoscaling, policy and scheduling."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dray.server.patch.schema.field_structure import (
    ALWAYS,
    CONDITIONS,
    MERGE_RETAIN,
    ONE,
    REPLACE,
    Structure,
    always,
    keyed,
    merged_only,
    retaining,
    rows,
    set_of_values,
    struct,
)
from dray.server.patch.schema.tables.core_kinds import CLAIM_TEMPLATE
from dray.server.patch.schema.tables.pod_kinds import TEMPLATE
from dray.server.patch.schema.tables.shared_fragments import METADATA, kind

_WITH_CONDITIONS = always(struct(conditions=CONDITIONS))

_TEMPLATE = always(TEMPLATE)

_JOB_SPEC = always(struct(selector=ONE, template=_TEMPLATE))

_JOB_STATUS = always(
    struct(
        conditions=merged_only("type"),
        uncountedTerminatedPods=struct(failed=set_of_values(), succeeded=set_of_values()),
    )
)

_GROUP_CLAIMS = keyed("name", strategy=MERGE_RETAIN)

_GROUP_TEMPLATE = struct(resourceClaims=_GROUP_CLAIMS, schedulingPolicy=ALWAYS)

WORKLOADS: Mapping[tuple[str, str], Structure] = MappingProxyType(
    {
        ("apps", "ControllerRevision"): kind(),
        ("apps", "DaemonSet"): kind(
            spec=always(struct(selector=ONE, template=_TEMPLATE, updateStrategy=ALWAYS)),
            status=_WITH_CONDITIONS,
        ),
        ("apps", "Deployment"): kind(
            spec=always(struct(selector=ONE, strategy=retaining(ALWAYS), template=_TEMPLATE)),
            status=_WITH_CONDITIONS,
        ),
        ("apps", "ReplicaSet"): kind(
            spec=always(struct(selector=ONE, template=_TEMPLATE)), status=_WITH_CONDITIONS
        ),
        ("apps", "StatefulSet"): kind(
            spec=always(
                struct(
                    selector=ONE,
                    template=_TEMPLATE,
                    updateStrategy=ALWAYS,
                    volumeClaimTemplates=rows(CLAIM_TEMPLATE),
                )
            ),
            status=_WITH_CONDITIONS,
        ),
        ("autoscaling", "HorizontalPodAutoscaler"): kind(
            spec=always(struct(scaleTargetRef=ALWAYS)), status=_WITH_CONDITIONS
        ),
        ("batch", "CronJob"): kind(
            spec=always(struct(jobTemplate=always(struct(metadata=METADATA, spec=_JOB_SPEC)))),
            status=always(struct(active=rows(ONE))),
        ),
        ("batch", "Job"): kind(spec=_JOB_SPEC, status=_JOB_STATUS),
        ("policy", "PodDisruptionBudget"): kind(
            spec=always(struct(selector=Structure(atomic=True, strategy=REPLACE))),
            status=_WITH_CONDITIONS,
        ),
        ("scheduling.k8s.io", "PodGroup"): kind(
            spec=always(struct(resourceClaims=_GROUP_CLAIMS, schedulingPolicy=ALWAYS)),
            status=always(
                struct(
                    conditions=keyed("type", strategy=()),
                    resourceClaimStatuses=keyed("name", strategy=MERGE_RETAIN),
                )
            ),
        ),
        ("scheduling.k8s.io", "Workload"): kind(
            spec=always(struct(podGroupTemplates=keyed("name", of=_GROUP_TEMPLATE, strategy=())))
        ),
        ("scheduling.k8s.io", "PriorityClass"): kind(),
    }
)
