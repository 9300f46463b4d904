"""Structures of the kinds that create pods: apps, batch, autoscaling, policy and scheduling."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dray.server.patch.schema.field_structure import (
    ALWAYS_PRESENT_MAP,
    ATOMIC_MAP,
    CONDITIONS,
    MERGE_RETAIN,
    REPLACE,
    Structure,
    define_atomic_list,
    define_keyed_list,
    define_merged_list,
    define_set,
    define_struct,
    make_always_present,
    make_retaining,
)
from dray.server.patch.schema.tables.core_kinds import CLAIM_TEMPLATE
from dray.server.patch.schema.tables.pod_kinds import TEMPLATE
from dray.server.patch.schema.tables.shared_fragments import METADATA, define_kind

_WITH_CONDITIONS = make_always_present(define_struct(conditions=CONDITIONS))

_TEMPLATE = make_always_present(TEMPLATE)

_JOB_SPEC = make_always_present(define_struct(selector=ATOMIC_MAP, template=_TEMPLATE))

_JOB_STATUS = make_always_present(
    define_struct(
        conditions=define_merged_list("type"),
        uncountedTerminatedPods=define_struct(failed=define_set(), succeeded=define_set()),
    )
)

_GROUP_CLAIMS = define_keyed_list("name", strategy=MERGE_RETAIN)

_GROUP_TEMPLATE = define_struct(resourceClaims=_GROUP_CLAIMS, schedulingPolicy=ALWAYS_PRESENT_MAP)

WORKLOADS: Mapping[tuple[str, str], Structure] = MappingProxyType(
    {
        ("apps", "ControllerRevision"): define_kind(),
        ("apps", "DaemonSet"): define_kind(
            spec=make_always_present(
                define_struct(selector=ATOMIC_MAP, template=_TEMPLATE, updateStrategy=ALWAYS_PRESENT_MAP)
            ),
            status=_WITH_CONDITIONS,
        ),
        ("apps", "Deployment"): define_kind(
            spec=make_always_present(
                define_struct(
                    selector=ATOMIC_MAP, strategy=make_retaining(ALWAYS_PRESENT_MAP), template=_TEMPLATE
                )
            ),
            status=_WITH_CONDITIONS,
        ),
        ("apps", "ReplicaSet"): define_kind(
            spec=make_always_present(define_struct(selector=ATOMIC_MAP, template=_TEMPLATE)),
            status=_WITH_CONDITIONS,
        ),
        ("apps", "StatefulSet"): define_kind(
            spec=make_always_present(
                define_struct(
                    selector=ATOMIC_MAP,
                    template=_TEMPLATE,
                    updateStrategy=ALWAYS_PRESENT_MAP,
                    volumeClaimTemplates=define_atomic_list(CLAIM_TEMPLATE),
                )
            ),
            status=_WITH_CONDITIONS,
        ),
        ("autoscaling", "HorizontalPodAutoscaler"): define_kind(
            spec=make_always_present(define_struct(scaleTargetRef=ALWAYS_PRESENT_MAP)),
            status=_WITH_CONDITIONS,
        ),
        ("batch", "CronJob"): define_kind(
            spec=make_always_present(
                define_struct(
                    jobTemplate=make_always_present(define_struct(metadata=METADATA, spec=_JOB_SPEC))
                )
            ),
            status=make_always_present(define_struct(active=define_atomic_list(ATOMIC_MAP))),
        ),
        ("batch", "Job"): define_kind(spec=_JOB_SPEC, status=_JOB_STATUS),
        ("policy", "PodDisruptionBudget"): define_kind(
            spec=make_always_present(define_struct(selector=Structure(atomic=True, strategy=REPLACE))),
            status=_WITH_CONDITIONS,
        ),
        ("scheduling.k8s.io", "PodGroup"): define_kind(
            spec=make_always_present(
                define_struct(resourceClaims=_GROUP_CLAIMS, schedulingPolicy=ALWAYS_PRESENT_MAP)
            ),
            status=make_always_present(
                define_struct(
                    conditions=define_keyed_list("type", strategy=()),
                    resourceClaimStatuses=define_keyed_list("name", strategy=MERGE_RETAIN),
                )
            ),
        ),
        ("scheduling.k8s.io", "Workload"): define_kind(
            spec=make_always_present(
                define_struct(podGroupTemplates=define_keyed_list("name", of=_GROUP_TEMPLATE, strategy=()))
            )
        ),
        ("scheduling.k8s.io", "PriorityClass"): define_kind(),
    }
)
