"""When kube-controller-manager counts as working: by its lease, or else by claims that it wrote."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dray.api.core import Lease, LeaseSpec
from dray.api.meta import ObjectMeta
from dray.api.resource import ResourceClaim
from dray.claims.claim_names import POD_CLAIM_NAME_ANNOTATION
from dray.client.client import Client
from dray.client.errors import ForbiddenError, NotFoundError, ServerUnreachableError
from dray.client.rest_client import ClientOptions
from dray.controllers.kube_controllers import CREATED_CLAIM_SECONDS, KubeControllerMonitor
from dray.telemetry.logs import build_silent_logger
from tests.support.manual_time import ManualTime


class LeaseServer:
    """A client of a server with a lease, or with a failure instead."""

    def __init__(self) -> None:
        self.time = ManualTime()
        self.options = ClientOptions(time_source=self.time.time_source)
        self.lease: LeaseSpec | Exception = NotFoundError(404, {})
        self.changes: list[bool] = []
        self.monitor = KubeControllerMonitor(cast(Client, self), build_silent_logger())
        self.monitor.on_changed = lambda: self.changes.append(self.monitor.is_active)

    async def get(self, _kind: Any, _name: str, _namespace: str) -> Lease:
        if isinstance(self.lease, Exception):
            raise self.lease
        return Lease(spec=self.lease)

    async def is_active_after(self, seconds: float, lease: LeaseSpec | Exception | None = None) -> bool:
        if lease is not None:
            self.lease = lease
        await self.time.advance(seconds)
        await self.monitor.check()
        return self.monitor.is_active


def held(renewed: str, holder: str = "host_1") -> LeaseSpec:
    return LeaseSpec(holder_identity=holder, lease_duration_seconds=15, renew_time=renewed)


async def test_a_lease_that_is_renewed_is_held() -> None:
    server = LeaseServer()
    assert not await server.is_active_after(0)
    for renewal in range(10):
        assert await server.is_active_after(10, held(f"then {renewal}"))
    assert await server.is_active_after(29)
    assert not await server.is_active_after(2)
    assert await server.is_active_after(1, held("again"))
    assert not await server.is_active_after(1, held("again", holder=""))
    assert server.changes == [True, False, True, False]


async def test_an_old_lease_is_observed_for_its_time_before_it_counts_as_abandoned() -> None:
    server = LeaseServer()
    assert await server.is_active_after(0, held("years ago"))
    assert not await server.is_active_after(31)


async def test_what_was_observed_holds_while_the_server_is_away() -> None:
    server = LeaseServer()
    assert await server.is_active_after(0, held("now"))
    assert await server.is_active_after(100, ServerUnreachableError("away"))


def claim(manager: str, created: str = "2026-01-01T00:00:00Z", *, of_pod: bool = True, **entry: str) -> Any:
    annotations = {POD_CLAIM_NAME_ANNOTATION: "gpu"} if of_pod else {}
    fields = ({"manager": "kubectl"}, {"manager": manager, **entry})
    return ResourceClaim(
        metadata=ObjectMeta(
            name="c", annotations=annotations, creation_timestamp=created, managed_fields=fields
        )
    )


@pytest.mark.parametrize("no_lease", [NotFoundError(404, {}), ForbiddenError(403, {})])
async def test_without_a_lease_claims_of_pods_show_it(no_lease: Exception) -> None:
    server = LeaseServer()
    server.monitor.claim_observer(claim("kube-controller-manager"))
    assert await server.is_active_after(0, no_lease)
    assert await server.is_active_after(CREATED_CLAIM_SECONDS - 1)
    assert not await server.is_active_after(2)


@pytest.mark.parametrize(
    "written",
    [
        claim("dray-controller"),
        claim("kube-controller-manager", of_pod=False),
        claim("kube-controller-manager", subresource="status"),
        claim("kube-controller-manager", "2025-12-31T23:00:00Z"),
    ],
)
async def test_other_claims_show_nothing(written: ResourceClaim) -> None:
    server = LeaseServer()
    server.monitor.claim_observer(written)
    assert not await server.is_active_after(0)


async def test_a_lease_without_holder_says_more_than_claims() -> None:
    server = LeaseServer()
    server.monitor.claim_observer(claim("kube-controller-manager"))
    assert not await server.is_active_after(0, held("now", holder=""))
