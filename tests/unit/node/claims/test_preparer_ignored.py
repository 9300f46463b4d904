"""An agent that does not prepare claims: pods start without devices, and prepared claims are released."""

from __future__ import annotations

import pytest

from dray.api.core import Container, ContainerClaim, ContainerResources
from dray.node.claims.outcomes import ClaimsReady
from tests.unit.node.claims.node_site import site


def wanting(entry: str) -> Container:
    return Container(name="c", resources=ContainerResources(claims=(ContainerClaim(name=entry),)))


@pytest.mark.req("K3063-162")
async def test_a_pod_starts_without_its_devices_and_has_an_event_about_it(tmp_path):
    async with site(tmp_path) as here:
        here.prepares_claims = False
        async with here.agent():
            await here.create_claim("c")
            a, b = (
                await here.create_bound_pod("a", "c"),
                await here.create_bound_pod("b", "nowhere", reserved=False),
            )
            for pod in (a, b, a):
                assert await here.preparer.prepare(pod) == ClaimsReady()
            assert here.preparer.list_cdi_names(a.metadata.uid, wanting("e0")) == ()
            assert here.gpu.calls == []
            assert await here.preparer.release(a.metadata.uid) is None
        told = "the agent of this node does not prepare claims: containers start without their devices"
        assert await here.told("ClaimsIgnored") == [told, told]
        assert await here.told("FailedPrepareDynamicResources") == []


@pytest.mark.req("K3063-166")
async def test_what_was_prepared_before_stays_with_its_pod_until_it_ends(tmp_path):
    async with site(tmp_path) as here:
        await here.create_claim("c")
        a = await here.create_bound_pod("a", "c")
        async with here.agent():
            await here.prepare_all(a)
            before = here.preparer.list_cdi_names(a.metadata.uid, wanting("e0"))
        here.prepares_claims = False
        async with here.agent(a):
            assert await here.preparer.prepare(a) == ClaimsReady()
            assert here.preparer.list_cdi_names(a.metadata.uid, wanting("e0")) == before != ()
            assert await here.preparer.release(a.metadata.uid) is None
            assert here.gpu.prepared == set()
        assert await here.told("ClaimsIgnored") == []
