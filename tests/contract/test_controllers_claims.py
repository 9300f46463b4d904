"""The claim controller against a real server, over both transports: the life of claims from birth to end."""

from __future__ import annotations

from dray.claims.naming import ENTRY_ANNOTATION, FINALIZER
from tests.contract.controlled import by_template, pod, template, world
from tests.contract.servers import way

__all__ = ["way"]


async def test_a_pod_gets_its_claims_and_takes_them_along(way, tmp_path):
    async with world(way, tmp_path) as here, here.controlled():
        await here.make(template("t"), pod("p", by_template("gpu"), by_template("nic")))
        names = await here.until_recorded("p", 2)
        owner = await here.pod("p")
        for entry, name in names.items():
            made = await here.claim(name)
            assert made.metadata.annotations[ENTRY_ANNOTATION] == entry
            assert made.metadata.finalizers == (FINALIZER,)
            assert [ref.uid for ref in made.metadata.owner_references] == [owner.metadata.uid]
            assert name.startswith(f"p-{entry}-")
        await here.allocate(names["gpu"], "p")
        await here.bind("p")
        await here.delete("p")
        await here.until(here.claims, lambda left: left == [])
