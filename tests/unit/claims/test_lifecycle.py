"""What should happen next to the claims of a pod, and to a claim, as a table of small worlds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dray.api.classic import ClassicResourceClaim
from dray.api.classic.resource_claim import ClassicClaimSpec, ClassicClaimStatus
from dray.api.core import Pod
from dray.api.core.pod import InlineTemplate, PodResourceClaim, PodResourceClaimStatus, PodSpec, PodStatus
from dray.api.meta import ObjectMeta, OwnerRef
from dray.api.resource import (
    AllocationResult,
    ConsumerReference,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceClaimTemplate,
)
from dray.api.resource.template import ResourceClaimTemplateSpec
from dray.claims import claim_names, reservation
from dray.claims.actions import (
    CreateClaim,
    DeleteClaim,
    EmitEvent,
    RecordClaims,
    ReleaseClaim,
    RemoveFinalizer,
    ReserveClaim,
)
from dray.claims.lifecycle import (
    FINALIZER,
    LifecycleLookups,
    decide_for_claim,
    decide_for_classic,
    decide_for_pod,
    decide_reservations,
)

TEMPLATE = ResourceClaimTemplate(
    metadata=ObjectMeta(name="t", namespace="ns"),
    spec=ResourceClaimTemplateSpec(metadata=ObjectMeta(labels={"a": "b"}, annotations={"c": "d"})),
)


class World:
    """Some objects, as a controller would see them."""

    def __init__(self, *objects: Any) -> None:
        self.objects = objects

    def around(self) -> LifecycleLookups:
        return LifecycleLookups(
            get_claim=lambda ns, name: self._one(ResourceClaim, ns, name),
            list_owned_claims=lambda pod: [
                each
                for each in self.objects
                if isinstance(each, ResourceClaim) and claim_names.is_owned_by(each.metadata, pod)
            ],
            get_template=lambda ns, name: self._one(ResourceClaimTemplate, ns, name),
            get_classic_claim=lambda ns, name: self._one(ClassicResourceClaim, ns, name),
            get_pod=lambda ns, name: self._one(Pod, ns, name),
            list_naming_pods=lambda ns, name: [
                each for each in self.objects if isinstance(each, Pod) and name in _named(each)
            ],
        )

    def _one(self, kind: Any, namespace: str, name: str) -> Any:
        for each in self.objects:
            if isinstance(each, kind) and each.metadata.namespace == namespace and each.metadata.name == name:
                return each
        return None


def _named(pod: Pod) -> list[str | None]:
    said = [status.resource_claim_name for status in pod.status.resource_claim_statuses]
    return [entry.resource_claim_name for entry in pod.spec.resource_claims] + said


def pod(
    *entries: PodResourceClaim, phase: str = "Pending", node: str = "", uid: str = "u1", **more: Any
) -> Pod:
    recorded = more.pop("recorded", {})
    statuses = tuple(PodResourceClaimStatus(name=k, resource_claim_name=v) for k, v in recorded.items())
    return Pod(
        metadata=ObjectMeta(name="p", namespace="ns", uid=uid, **more),
        spec=PodSpec(resource_claims=entries, node_name=node),
        status=PodStatus(phase=phase, resource_claim_statuses=statuses),
    )


def claim(
    name: str = "c",
    *,
    users: tuple[str, ...] = (),
    allocated: bool = False,
    owner: str = "",
    entry: str = "",
    **metadata: Any,
) -> ResourceClaim:
    owners = (OwnerRef(api_version="v1", kind="Pod", name="p", uid=owner),) if owner else ()
    annotations = {claim_names.POD_CLAIM_NAME_ANNOTATION: entry} if entry else {}
    return ResourceClaim(
        metadata=ObjectMeta(
            name=name,
            namespace="ns",
            uid=f"uid-{name}",
            owner_references=owners,
            annotations=annotations,
            **metadata,
        ),
        status=ResourceClaimStatus(
            allocation=AllocationResult() if allocated else None,
            reserved_for=tuple(ConsumerReference(resource="pods", name="p", uid=user) for user in users),
        ),
    )


FROM_TEMPLATE = PodResourceClaim(name="gpu", resource_claim_template_name="t")
BY_NAME = PodResourceClaim(name="gpu", resource_claim_name="c")
DELETED: dict[str, Any] = {"deletion_timestamp": "2026-01-01T00:00:00Z"}


class TestPods:
    def test_a_template_makes_one_claim(self):
        waiting = pod(FROM_TEMPLATE)
        (action,) = decide_for_pod(waiting, World(TEMPLATE, waiting).around())
        assert isinstance(action, CreateClaim)
        made = action.claim.metadata
        assert (made.generate_name, made.namespace, made.name) == ("p-gpu-", "ns", "")
        assert made.labels == {"a": "b"}
        assert made.annotations == {"c": "d", "resource.kubernetes.io/pod-claim-name": "gpu"}
        assert made.owner_references[0].uid == "u1"
        assert made.owner_references[0].controller is True
        assert made.finalizers == (FINALIZER,)

    def test_the_template_itself_is_left_alone(self):
        waiting = pod(FROM_TEMPLATE)
        decide_for_pod(waiting, World(TEMPLATE, waiting).around())
        assert TEMPLATE.spec.metadata.annotations == {"c": "d"}

    def test_a_claim_that_was_made_is_recorded_and_not_made_again(self):
        waiting, made = pod(FROM_TEMPLATE), claim("p-gpu-x", owner="u1", entry="gpu")
        actions = decide_for_pod(waiting, World(TEMPLATE, made, waiting).around())
        assert actions == [RecordClaims(waiting, (("gpu", "p-gpu-x"),))]

    def test_what_is_recorded_needs_nothing(self):
        waiting = pod(FROM_TEMPLATE, recorded={"gpu": "p-gpu-x"})
        made = claim("p-gpu-x", owner="u1", entry="gpu")
        assert decide_for_pod(waiting, World(TEMPLATE, made, waiting).around()) == []

    def test_two_entries_are_recorded_together(self):
        other = PodResourceClaim(name="nic", resource_claim_template_name="t")
        waiting = pod(FROM_TEMPLATE, other)
        world = World(claim("a", owner="u1", entry="gpu"), claim("b", owner="u1", entry="nic"), waiting)
        assert decide_for_pod(waiting, world.around()) == [
            RecordClaims(waiting, (("gpu", "a"), ("nic", "b")))
        ]

    def test_nothing_is_recorded_while_a_name_is_still_to_come(self):
        other = PodResourceClaim(name="nic", resource_claim_template_name="t")
        waiting = pod(FROM_TEMPLATE, other)
        world = World(TEMPLATE, claim("a", owner="u1", entry="gpu"), waiting)
        (action,) = decide_for_pod(waiting, world.around())
        assert isinstance(action, CreateClaim)
        assert action.entry == "nic"

    def test_claims_whose_names_are_chosen_are_recorded_in_the_same_decision(self):
        other = PodResourceClaim(name="nic", resource_claim_template_name="t")
        waiting = pod(FROM_TEMPLATE, other)
        world = World(TEMPLATE, claim("a", owner="u1", entry="gpu"), waiting)
        created, record = decide_for_pod(waiting, world.around(), lambda prefix: f"{prefix}xyz")
        assert isinstance(created, CreateClaim)
        metadata = created.claim.metadata
        assert (metadata.name, metadata.generate_name) == ("p-nic-xyz", "p-nic-")
        assert record == RecordClaims(waiting, (("gpu", "a"), ("nic", "p-nic-xyz")))

    def test_what_can_be_made_is_recorded_while_a_template_is_missing(self):
        other = PodResourceClaim(name="nic", resource_claim_template_name="missing")
        waiting = pod(FROM_TEMPLATE, other)
        world = World(TEMPLATE, claim("a", owner="u1", entry="gpu"), waiting)
        told, record = decide_for_pod(waiting, world.around())
        assert isinstance(told, EmitEvent)
        assert record == RecordClaims(waiting, (("gpu", "a"),))

    def test_a_name_that_is_cut_does_not_end_in_a_dot(self):
        long = PodResourceClaim(name="gpu", resource_claim_template_name="t")
        waiting = msgspec.structs.replace(
            pod(long), metadata=ObjectMeta(name="a" * 56 + ".b", namespace="ns", uid="u1")
        )
        (action,) = decide_for_pod(waiting, World(TEMPLATE, waiting).around())
        assert isinstance(action, CreateClaim)
        assert action.claim.metadata.generate_name == "a" * 56 + "-"

    def test_a_claim_of_an_earlier_pod_of_that_name_is_not_used(self):
        waiting, earlier = pod(FROM_TEMPLATE), claim("p-gpu-x", owner="u0", entry="gpu")
        (action,) = decide_for_pod(waiting, World(TEMPLATE, earlier, waiting).around())
        assert isinstance(action, CreateClaim)

    def test_a_missing_template_is_told(self):
        waiting = pod(FROM_TEMPLATE)
        (action,) = decide_for_pod(waiting, World(waiting).around())
        assert isinstance(action, EmitEvent)
        assert "ResourceClaimTemplate t does not exist" in action.text

    @pytest.mark.parametrize("over", [{"phase": "Succeeded"}, {"phase": "Failed"}, DELETED])
    def test_a_pod_that_is_over_gets_nothing(self, over):
        waiting = pod(FROM_TEMPLATE, **over)
        assert decide_for_pod(waiting, World(TEMPLATE, waiting).around()) == []

    @pytest.mark.req("K3063-096", "K3063-103")
    def test_an_inline_template_makes_a_classic_claim_by_name(self):
        inline = InlineTemplate(spec=ClassicClaimSpec(resource_class_name="fpga"))
        waiting = pod(PodResourceClaim(name="fpga", template=inline))
        (action,) = decide_for_pod(waiting, World(waiting).around())
        assert isinstance(action, CreateClaim)
        assert (action.claim.metadata.name, action.claim.spec) == ("p-fpga", inline.spec)

    @pytest.mark.req("K3063-101", "K3063-104")
    def test_a_classic_claim_that_was_made_is_never_touched_again(self):
        waiting = pod(PodResourceClaim(name="fpga", template=InlineTemplate()))
        other = ClassicClaimSpec(resource_class_name="changed-since")
        metadata = ObjectMeta(
            name="p-fpga", namespace="ns", owner_references=(claim_names.build_owner_reference(waiting),)
        )
        made = ClassicResourceClaim(metadata=metadata, spec=other)
        assert decide_for_pod(waiting, World(made, waiting).around()) == []
        assert decide_for_classic(made, World(made, waiting).around()) == []

    @pytest.mark.req("K3063-099")
    @pytest.mark.parametrize("kind", [ClassicResourceClaim, ResourceClaim])
    def test_a_stranger_of_that_name_blocks_the_pod(self, kind):
        waiting = pod(PodResourceClaim(name="fpga", template=InlineTemplate()))
        stranger = kind(metadata=ObjectMeta(name="p-fpga", namespace="ns"))
        (action,) = decide_for_pod(waiting, World(stranger, waiting).around())
        assert isinstance(action, EmitEvent)
        assert "does not belong to this pod" in action.text

    def test_a_pod_that_somebody_else_placed_gets_its_claim_reserved(self):
        placed, taken = pod(BY_NAME, node="n"), claim(allocated=True)
        (action,) = decide_reservations(placed, World(taken, placed).around())
        assert action == ReserveClaim(taken, ConsumerReference(resource="pods", name="p", uid="u1"))

    def test_a_pod_that_was_placed_without_devices_is_told(self):
        placed = pod(BY_NAME, node="n")
        (action,) = decide_reservations(placed, World(claim(), placed).around())
        assert isinstance(action, EmitEvent)
        assert "has no devices" in action.text

    @pytest.mark.req("K3063-125", "K3063-167")
    @pytest.mark.parametrize("inline", [False, True])
    def test_a_pod_that_was_placed_without_its_classic_claim_is_told(self, inline):
        made = PodResourceClaim(name="fpga", template=InlineTemplate())
        placed = pod(made if inline else BY_NAME, node="n")
        metadata = ObjectMeta(
            name="p-fpga" if inline else "c",
            namespace="ns",
            owner_references=(claim_names.build_owner_reference(placed),),
        )
        (action,) = decide_reservations(
            placed, World(ClassicResourceClaim(metadata=metadata), placed).around()
        )
        assert isinstance(action, EmitEvent)
        assert f"claim {metadata.name} is not reserved for this pod" in action.text
        reserved = ClassicResourceClaim(
            metadata=metadata,
            status=ClassicClaimStatus(reserved_for=(reservation.build_classic_user(placed),)),
        )
        assert decide_reservations(placed, World(reserved, placed).around()) == []


class TestClaims:
    def test_a_running_consumer_keeps_everything(self):
        taken, running = claim(users=("u1",), allocated=True), pod(phase="Running", node="n")
        assert decide_for_claim(taken, World(running).around()) == []

    @pytest.mark.parametrize(
        "after",
        [
            [],
            [pod(uid="u2")],
            [pod(phase="Succeeded", node="n")],
            [pod(phase="Failed", node="n")],
            [pod(**DELETED)],
        ],
        ids=["gone", "replaced", "succeeded", "failed", "never ran"],
    )
    def test_the_last_consumer_takes_the_devices_along(self, after):
        taken = claim(users=("u1",), allocated=True)
        assert decide_for_claim(taken, World(*after).around()) == [
            ReleaseClaim(taken, frozenset({"u1"}), True)
        ]

    def test_a_pod_that_is_being_stopped_still_counts(self):
        taken = claim(users=("u1",), allocated=True)
        assert decide_for_claim(taken, World(pod(node="n", phase="Running", **DELETED)).around()) == []

    def test_other_consumers_are_kept(self):
        group = ConsumerReference(api_group="jobs", resource="groups", name="g", uid="g1")
        ours = ConsumerReference(resource="pods", name="p", uid="u1")
        taken = ResourceClaim(
            metadata=ObjectMeta(name="c", namespace="ns"),
            status=ResourceClaimStatus(allocation=AllocationResult(), reserved_for=(group, ours)),
        )
        assert decide_for_claim(taken, World().around()) == [ReleaseClaim(taken, frozenset({"u1"}), False)]

    def test_a_cold_start_finds_what_was_left(self):
        left = claim(allocated=True, finalizers=(FINALIZER,), **DELETED)
        assert decide_for_claim(left, World().around()) == [RemoveFinalizer(left)]

    def test_a_claim_that_is_being_deleted_goes_with_its_devices(self):
        left = claim(users=("u1",), allocated=True, finalizers=(FINALIZER,), **DELETED)
        assert decide_for_claim(left, World().around()) == [RemoveFinalizer(left, frozenset({"u1"}))]

    def test_the_devices_go_first_where_somebody_else_keeps_the_claim(self):
        kept = (FINALIZER, "example.com/keep")
        held = claim(allocated=True, finalizers=kept, **DELETED)
        assert decide_for_claim(held, World().around()) == [
            ReleaseClaim(held, frozenset(), True),
            RemoveFinalizer(held),
        ]
        freed = claim(finalizers=kept, **DELETED)
        assert decide_for_claim(freed, World().around()) == [RemoveFinalizer(freed)]

    def test_a_claim_that_never_had_devices_is_let_go_at_once(self):
        fresh = claim(finalizers=(FINALIZER,))
        assert decide_for_claim(fresh, World().around()) == []
        deleted = claim(finalizers=(FINALIZER,), **DELETED)
        assert decide_for_claim(deleted, World().around()) == [RemoveFinalizer(deleted)]

    def test_what_was_allocated_by_hand_waits_for_its_consumer(self):
        assert decide_for_claim(claim(allocated=True), World().around()) == []

    def test_what_a_scheduler_gave_and_nobody_wants_goes_back(self):
        left = claim(allocated=True, finalizers=(FINALIZER,))
        assert decide_for_claim(left, World().around()) == [ReleaseClaim(left, frozenset(), True)]
        assert decide_for_claim(left, World(pod(BY_NAME)).around()) == []
        assert decide_for_claim(left, World(pod(BY_NAME, phase="Failed")).around()) == [
            ReleaseClaim(left, frozenset(), True)
        ]

    @pytest.mark.parametrize("world", [World(), World(pod(uid="another"))])
    def test_a_claim_goes_when_its_pod_is_gone(self, world):
        orphan = claim(users=("u1",), allocated=True, owner="u1", finalizers=(FINALIZER,))
        end = [DeleteClaim(orphan), RemoveFinalizer(orphan, frozenset({"u1"}))]
        assert decide_for_claim(orphan, world.around()) == end

    def test_the_pod_of_a_claim_that_somebody_else_keeps_takes_its_devices_along(self):
        kept = claim(users=("u1",), allocated=True, owner="u1", finalizers=(FINALIZER, "x.io/keep"))
        assert decide_for_claim(kept, World().around()) == [DeleteClaim(kept)]
        assert decide_for_claim(kept, World(pod(phase="Failed")).around()) == [
            ReleaseClaim(kept, frozenset({"u1"}), True),
            DeleteClaim(kept),
        ]

    def test_a_claim_with_another_owner_stays_and_gives_back_its_devices(self):
        owner = OwnerRef(api_version="apps/v1", kind="Deployment", name="d", uid="u9")
        shared = claim(users=("u1",), allocated=True, owner="u1", finalizers=(FINALIZER,))
        owners = (*shared.metadata.owner_references, owner)
        shared = msgspec.structs.replace(
            shared, metadata=msgspec.structs.replace(shared.metadata, owner_references=owners)
        )
        assert decide_for_claim(shared, World().around()) == [
            ReleaseClaim(shared, frozenset({"u1"}), deallocate=True)
        ]

    def test_a_claim_goes_when_its_pod_is_over(self):
        made = claim(owner="u1", entry="gpu")
        assert decide_for_claim(made, World(pod(phase="Succeeded")).around()) == [DeleteClaim(made)]
        assert decide_for_claim(made, World(pod(phase="Running", node="n")).around()) == []
        used = claim(users=("u1",), allocated=True, owner="u1", finalizers=(FINALIZER,))
        assert decide_for_claim(used, World(pod(phase="Succeeded")).around()) == [
            DeleteClaim(used),
            RemoveFinalizer(used, frozenset({"u1"})),
        ]


def test_a_classic_claim_only_loses_its_users():
    user = OwnerRef(api_version="v1", kind="Pod", name="p", uid="u1")
    taken = ClassicResourceClaim(
        metadata=ObjectMeta(name="c", namespace="ns"), status=ClassicClaimStatus(reserved_for=(user,))
    )
    assert decide_for_classic(taken, World().around()) == [ReleaseClaim(taken, frozenset({"u1"}), False)]
    assert decide_for_classic(taken, World(pod(node="n", phase="Running")).around()) == []


@pytest.mark.req("K3063-044", "K3063-106")
def test_other_users_of_a_classic_claim_are_theirs_to_remove():
    group = OwnerRef(api_version="jobs/v1", kind="Group", name="p", uid="g1")
    gone = OwnerRef(api_version="v1", kind="Pod", name="p", uid="u1")
    taken = ClassicResourceClaim(
        metadata=ObjectMeta(name="c", namespace="ns"),
        status=ClassicClaimStatus(phase="Allocated", reserved_for=(group, gone)),
    )
    assert decide_for_classic(taken, World().around()) == [ReleaseClaim(taken, frozenset({"u1"}), False)]
    left = msgspec.structs.replace(taken, status=ClassicClaimStatus(phase="Allocated", reserved_for=(group,)))
    assert decide_for_classic(left, World().around()) == []
