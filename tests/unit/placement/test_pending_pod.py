"""Who is to be placed: entries become claims, or what they wait for."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod, PodResourceClaimStatus
from dray.api.meta import ObjectMeta, OwnerRef
from dray.api.resource import ConsumerReference, ResourceClaim
from dray.claims.claim_names import build_owner_reference
from dray.claims.pod_claims import PodClaimLookup
from dray.placement.pending_pod import PLUGIN_NAME, PendingPod, resolve_pending_pod
from dray.placement.rejections import PluginRejection, Signal, Topic
from tests.unit.placement.pods_and_nodes import pod


def named(entry: str, claim: str) -> dict[str, Any]:
    return {"name": entry, "resourceClaimName": claim}


def made(entry: str) -> dict[str, Any]:
    return {"name": entry, "resourceClaimTemplateName": "t"}


def claim(name: str, *owners: OwnerRef, **more: Any) -> ResourceClaim:
    metadata = ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", owner_references=owners, **more)
    return ResourceClaim(metadata=metadata)


def seen(*claims: ResourceClaim, classic: tuple[ClassicResourceClaim, ...] = ()) -> PodClaimLookup:
    known = {(each.metadata.namespace, each.metadata.name): each for each in claims}
    others = {(each.metadata.namespace, each.metadata.name): each for each in classic}
    return PodClaimLookup(lambda *key: known.get(key), lambda *key: others.get(key))


def recorded(asked: Pod, **names: str | None) -> Pod:
    rows = tuple(
        PodResourceClaimStatus(name=entry, resource_claim_name=name) for entry, name in names.items()
    )
    return replace(asked, status=replace(asked.status, resource_claim_statuses=rows))


def why(found: PendingPod | PluginRejection, *wakes: Signal) -> str:
    assert isinstance(found, PluginRejection)
    assert found.plugin == PLUGIN_NAME
    assert found.wake_signals == frozenset(wakes)
    return found.reason


def names(found: PendingPod | PluginRejection) -> list[str]:
    assert isinstance(found, PendingPod)
    return [each.metadata.name for each in found.claims]


CLAIM = Signal(Topic.CLAIM, "ns/c")


def test_a_pod_without_claims_is_ready() -> None:
    found = resolve_pending_pod(pod(), seen())
    assert isinstance(found, PendingPod)
    assert (found.claims, found.classic_claims, found.pending, found.name) == ((), (), (), "ns/p")


def test_a_claim_that_two_entries_name_is_there_once() -> None:
    asked = pod(resourceClaims=[named("one", "c"), named("two", "d"), named("three", "c")])
    assert names(resolve_pending_pod(asked, seen(claim("c"), claim("d")))) == ["c", "d"]


def test_a_claim_that_is_not_there_is_waited_for() -> None:
    found = resolve_pending_pod(pod(resourceClaims=[named("one", "c")]), seen())
    assert why(found, CLAIM) == "claim ns/c does not exist"


def test_a_template_whose_claim_is_not_recorded_waits_for_the_pod() -> None:
    found = resolve_pending_pod(pod(resourceClaims=[made("gpu")]), seen(claim("p-gpu"), claim("gpu")))
    assert why(found, Signal(Topic.POD, "ns/p")) == (
        "entry gpu: its claim has not been made from template t yet"
    )


def test_an_entry_that_needs_no_claim_has_none() -> None:
    asked = recorded(pod(resourceClaims=[made("gpu")]), gpu=None)
    assert names(resolve_pending_pod(asked, seen())) == []


def test_what_the_status_names_is_used_when_it_is_the_pods() -> None:
    asked = recorded(pod(resourceClaims=[made("gpu")]), gpu="c")
    assert names(resolve_pending_pod(asked, seen(claim("c", build_owner_reference(asked))))) == ["c"]
    plain = OwnerRef(api_version="v1", kind="Pod", name="p", uid="u")
    assert names(resolve_pending_pod(asked, seen(claim("c", plain)))) == ["c"]


def test_a_claim_of_another_owner_blocks_the_pod() -> None:
    asked = recorded(pod(resourceClaims=[made("gpu")]), gpu="c")
    before = OwnerRef(api_version="v1", kind="Pod", name="p", uid="an older pod of this name")
    for owners in ((), (before,)):
        found = resolve_pending_pod(asked, seen(claim("c", *owners)))
        assert why(found, CLAIM) == "claim ns/c exists and does not belong to this pod"


def test_a_claim_on_its_way_out_is_not_for_new_pods() -> None:
    asked = pod(resourceClaims=[named("one", "c")])
    leaving = claim("c", deletion_timestamp="2026-01-01T00:00:00Z")
    assert why(resolve_pending_pod(asked, seen(leaving)), CLAIM) == "claim ns/c is being deleted"
    ours = ConsumerReference(resource="pods", name="p", uid="u")
    kept = replace(leaving, status=replace(leaving.status, reserved_for=(ours,)))
    assert names(resolve_pending_pod(asked, seen(kept))) == ["c"]


def test_a_claim_with_all_consumers_it_can_have_is_full() -> None:
    others = tuple(ConsumerReference(resource="pods", name=f"o{n}", uid=f"o{n}") for n in range(256))
    full = claim("c")
    full = replace(full, status=replace(full.status, reserved_for=others))
    asked = pod(resourceClaims=[named("one", "c")])
    assert why(resolve_pending_pod(asked, seen(full)), CLAIM) == (
        "claim ns/c has 256 consumers already, the most a claim can have"
    )
    one_less = replace(full, status=replace(full.status, reserved_for=others[1:]))
    assert names(resolve_pending_pod(asked, seen(one_less))) == ["c"]


def test_a_name_may_be_of_a_classic_claim() -> None:
    old = ClassicResourceClaim(metadata=ObjectMeta(name="c", namespace="ns", uid="x"))
    found = resolve_pending_pod(pod(resourceClaims=[named("one", "c")]), seen(classic=(old,)))
    assert isinstance(found, PendingPod)
    assert (found.claims, found.classic_claims) == ((), (old,))
