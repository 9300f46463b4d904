"""What may be written into a claim, and by whom: allocation, device status, admin access, finalizers.

Theory of operation: the right to write a claim's status is split, as Kubernetes splits it. Who got the claim
(`allocation`, `reservedFor`) is written by who may write `resourceclaims/binding`; how the devices are
(`devices`) by who speaks for each driver whose entries change, on the node the claim is allocated to. These
are asked beside the right to write `resourceclaims/status`. What vanishes together with its allocation needs
no word of the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dray.api.fields import Path
from dray.api.kinds import known_kind
from dray.api.resource import AllocatedDeviceStatus, ResourceClaim
from dray.claims import classic_phases
from dray.claims.admin_access import (
    ADMIN_ACCESS,
    asking_fields,
    forbid_unasked,
    forbid_unlabelled,
    result_fields,
)
from dray.server.admission.change import CREATE, NOTHING, Change, Extra
from dray.server.auth.authz.authorizer import Access
from dray.server.auth.authz.node_pod_graph import CLASSIC, DEVICES
from dray.server.auth.authz.policy_rules import Asked
from dray.server.auth.restriction.driver_restriction import Drivers
from dray.server.http.errors import forbidden, invalid
from dray.server.objects.stored_object import key
from dray.server.watch.cache import Cache
from dray.store import Unchanged

CLAIM, TEMPLATE = known_kind(DEVICES, "ResourceClaim"), known_kind(DEVICES, "ResourceClaimTemplate")
CLASSIC_CLAIM = known_kind(CLASSIC, "ResourceClaim")
_NAMESPACE, _POD = known_kind("", "Namespace"), known_kind("", "Pod")

_NO_CLAIM = ResourceClaim()


def _verb(change: Change) -> str:
    return "patch" if change.request.call.verb == "patch" else "update"


def _asked_binding(change: Change) -> Asked:
    return Asked(_verb(change), change.kind.group, "resourceclaims", "binding", change.namespace, change.name)


class StatusRule:
    """Splits the right to write the status of a claim."""

    def __init__(self, cache: Cache, access: Access, drivers: Drivers) -> None:
        self._cache = cache
        self._access = access
        self._drivers = drivers

    def judge(self, change: Change) -> Extra:
        if change.kind is CLAIM and change.draft is not None:
            self._judge_claim(change, change.view, change.old_view or _NO_CLAIM)
        elif change.kind is CLASSIC_CLAIM and change.draft is not None:
            self._judge_classic(change)
        return NOTHING

    def _judge_claim(self, change: Change, new: ResourceClaim, old: ResourceClaim) -> None:
        if new.status == old.status:
            return
        moved = new.status.allocation != old.status.allocation
        if moved or new.status.reserved_for != old.status.reserved_for:
            self._access.require(change.request.user, _asked_binding(change))
        drivers = drivers_changed(new, old)
        if drivers:
            # What counts is where the claim was when the driver looked, not where this very write puts it.
            nodes = self._nodes_of(old if change.operation != CREATE else new, change.namespace)
            for driver in drivers:
                self._judge_driver(change, driver, nodes)

    def _judge_driver(self, change: Change, driver: str, nodes: frozenset[str]) -> None:
        user, verb = change.request.user, _verb(change)
        reach = self._drivers.reach(user, driver, verb, change.namespace)
        if reach.everywhere or (reach.node is not None and reach.node in nodes):
            return
        if reach.node is not None:
            where = ", ".join(f'"{node}"' for node in sorted(nodes)) or "no node"
            why = (
                f'changing status.devices of driver "{driver}": User "{user.name}" is on node '
                f'"{reach.node}", the claim is allocated to {where}'
            )
        else:
            why = (
                f'changing status.devices requires "associated-node:{verb}" or "arbitrary-node:{verb}" on '
                f'"resourceclaims/driver" for driver "{driver}": User "{user.name}" does not have it'
            )
        raise forbidden(change.kind, change.name, why)

    def _nodes_of(self, claim: ResourceClaim, namespace: str) -> frozenset[str]:
        """The node an allocation is tied to; for devices that many nodes reach, where its pods are."""
        allocation = claim.status.allocation
        selector = None if allocation is None else allocation.node_selector
        if selector is not None and selector.only_node:
            return frozenset({selector.only_node})
        found = (self._pod_node(namespace, user.name, user.uid) for user in claim.status.reserved_for)
        return frozenset(node for node in found if node)

    def _pod_node(self, namespace: str, name: str, uid: str) -> str | None:
        held = self._cache.get(_POD, namespace, name)
        if held is None or held.metadata.uid != uid:
            return None
        node: str | None = (held.document.get("spec") or {}).get("nodeName")
        return node

    def _judge_classic(self, change: Change) -> None:
        """A driver's controller writes its part of the negotiation, and only in claims of its own driver."""
        user, new, old = change.request.user, change.view.status, getattr(change.old_view, "status", None)
        bound = self._drivers.spokesman(user).drivers
        if bound is None or new == old:
            return
        for status in (new, old):
            if status is not None and status.driver_name and status.driver_name not in bound:
                why = f'User "{user.name}" does not speak for driver "{status.driver_name}"'
                raise forbidden(change.kind, change.name, why)
        if old is None:
            self._access.require(user, _asked_binding(change))
            return
        beyond = list(classic_phases.beyond_driver(change.view, change.old_view))
        if beyond and not self._access.allows(user, _asked_binding(change)):
            raise forbidden(change.kind, change.name, f'User "{user.name}" is a driver: {"; ".join(beyond)}')


def drivers_changed(new: ResourceClaim, old: ResourceClaim) -> list[str]:
    """The drivers whose entries in `status.devices` differ, but for entries that go with their allocation."""
    before, after = _entries(old.status.devices), _entries(new.status.devices)
    allocation = new.status.allocation
    results = () if allocation is None else allocation.devices.results
    still = {(one.driver, one.pool, one.device, one.share_id) for one in results}
    changed = {
        place[0]
        for place in {*before, *after}
        if before.get(place) != after.get(place) and (place in after or place in still)
    }
    return sorted(changed)


def _entries(devices: Sequence[AllocatedDeviceStatus]) -> dict[tuple[str, ...], AllocatedDeviceStatus]:
    return {(one.driver, one.pool, one.device, one.share_id): one for one in devices}  # type: ignore[misc]


# --- admin access ---


class AdminAccessRule:
    """Admin access to devices is only for namespaces that an administrator has labelled for it."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def judge(self, change: Change) -> Extra:
        place = next(_admin_access(change), None)
        if place is None:
            return NOTHING
        where = key(_NAMESPACE, "", change.namespace)
        namespace = self._cache.at(where)
        if namespace is None or namespace.metadata.labels.get(ADMIN_ACCESS) != "true":
            raise invalid(change.kind, change.name, [forbid_unlabelled(place)])
        unasked = [] if change.kind is TEMPLATE else list(forbid_unasked(change.view))
        if unasked:
            raise invalid(change.kind, change.name, unasked)
        # The label must still be there when the write happens.
        return Extra(compares=(Unchanged(where, namespace.revision),))


def _admin_access(change: Change) -> Iterator[Path]:
    """Where a change asks for admin access that was not there before."""
    if change.draft is None:
        return
    if change.kind is CLAIM:
        if change.operation == CREATE:
            yield from asking_fields(change.view)
        if not any(result_fields(change.old_view or _NO_CLAIM)):
            yield from result_fields(change.view)
    elif change.kind is TEMPLATE and change.operation == CREATE:
        yield from asking_fields(change.view)


# --- finalizers ---

SYSTEM_FINALIZERS = frozenset({"resource.kubernetes.io/delete-protection"})


class FinalizerRule:
    """Finalizers by which the system keeps a claim in use from vanishing are written by the system alone."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def judge(self, change: Change) -> Extra:
        if change.kind not in (CLAIM, CLASSIC_CLAIM):
            return NOTHING
        # A claim that vanishes with a finalizer on it vanishes because that finalizer was just taken away.
        touched = SYSTEM_FINALIZERS & (_finalizers(change.old_view) ^ _finalizers(change.view))
        if touched and not self._access.allows(change.request.user, _asked_binding(change)):
            why = (
                f'User "{change.request.user.name}" cannot add or remove the finalizer `{min(touched)}`; '
                f'that needs the verb "{_verb(change)}" on "resourceclaims/binding"'
            )
            raise forbidden(change.kind, change.name, why)
        return NOTHING


def _finalizers(view: Any) -> set[str]:
    return set() if view is None else set(view.metadata.finalizers)
