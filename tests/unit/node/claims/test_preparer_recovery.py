"""Agents that crash at every point, and checkpoints that are lost, torn, old, or of a later version."""

from __future__ import annotations

import shutil

import pytest

from dray.api.core import Pod
from dray.api.preparation import Preparation
from dray.client.errors import ServerUnreachableError
from dray.client.patches import MergePatch
from dray.durable import StateFile, UnsupportedVersionError
from dray.node.claims.outcomes import ClaimsReady
from dray.node.claims.record import NodeClaimStage
from tests.contract.controlled import by_template, pod, template
from tests.contract.documents import claim, owner
from tests.unit.node.claims.crash_points import POINTS
from tests.unit.node.claims.node_site import NIC, NODE, POD, Died, Site, result, site


async def life(here: Site, one: Pod) -> None:
    """What an agent does with a pod, from beginning to end."""
    while not isinstance(await here.preparer.prepare(one), ClaimsReady):
        await here.preparer.wait_for_retry(one.metadata.uid)
    assert here.gpu.prepared == {"c"}
    await here.release_all(one)
    await here.preparer._releaser.process_pending()


async def test_these_are_all_points_at_which_an_agent_can_die(tmp_path):
    async with site(tmp_path) as here:
        await here.create_claim("c")
        a = await here.create_bound_pod("a", "c")
        async with here.agent(running=False):
            await life(here, a)
        assert set(here.points) == {*POINTS, "awakened, not kept", "awakened, kept"}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("force", [False, True])
async def test_an_agent_that_dies_misses_nothing(tmp_path, point, force):
    """Whatever point it was: the next agent prepares before the pod runs, and gives back what is there.

    With `force` the pod is gone when the next agent comes, so that only its record knows of it.
    """
    async with site(tmp_path) as here:
        await here.create_claim("c")
        a = await here.create_bound_pod("a", "c")
        here.crash_at = point
        async with here.agent(running=False):
            with pytest.raises(Died):
                await life(here, a)
        here.crash_at = ""
        if force:
            await here.delete("a")
        async with here.agent(*(() if force else (a,))):
            in_hands = {held.name for held in here.preparer.record.claims if held.parts}
            assert here.gpu.prepared <= in_hands
            if force:
                for uid in here.preparer.list_users():
                    assert await here.preparer.release(uid) is None
                await here.wait_until_empty()
            else:
                await life(here, a)
                await here.wait_until_empty()
        last = [verb for verb, _ in here.gpu.calls][-1:]
        assert last in ([], ["unprepare"])


def torn(here: Site) -> None:
    here.checkpoint.write_bytes(here.checkpoint.read_bytes().partition(b"\n")[0][:-20])


def flipped(here: Site) -> None:
    here.checkpoint.write_bytes(here.checkpoint.read_bytes().replace(b'"default"', b'"dexault"', 1))


def foreign(here: Site) -> None:
    StateFile("something else", 1).write(here.checkpoint, {})


def deleted(here: Site) -> None:
    here.checkpoint.unlink()


def empty(here: Site) -> None:
    here.checkpoint.write_bytes(b"")


def not_a_record(here: Site) -> None:
    StateFile("dray node checkpoint", 1).write(here.checkpoint, {"claims": 7})


def forgotten_version(here: Site) -> None:
    StateFile("dray node checkpoint", 0).write(here.checkpoint, {"claims": []})


DAMAGES = (torn, flipped, foreign, deleted, empty, not_a_record, forgotten_version)


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_lost_record_is_rebuilt_and_everything_is_prepared_again(tmp_path, damage):
    async with site(tmp_path) as here:
        await here.create_claim("c", result(), result(NIC, "nic-0"))
        await here.create_claim("d", result(device="gpu-1"))
        a, b = await here.create_bound_pod("a", "c"), await here.create_bound_pod("b", "c", "d")
        async with here.agent():
            await here.prepare_all(a, b)
        damage(here)
        before = len(here.gpu.calls)
        async with here.agent(a, b):
            held = {each.name: (each.state, len(each.users)) for each in here.preparer.record.claims}
            assert held == {"c": (NodeClaimStage.PREPARING, 2), "d": (NodeClaimStage.PREPARING, 1)}
            await here.prepare_all(a, b)
            assert [verb for verb, _ in here.gpu.calls[before:]] == ["prepare", "prepare"]
            await here.release_all(a)
            assert here.gpu.prepared == {"c", "d"}
            await here.release_all(b)
            await here.wait_until_empty()
        kept = [path.name for path in here.checkpoint.parent.glob("claims.json.damaged-*")]
        assert kept == ([] if damage is deleted else ["claims.json.damaged-1"])


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_lost_record_is_rebuilt_and_unused_claims_are_released(tmp_path, damage):
    """The pod was deleted by force and its claim with it: the node's own word in the API is all there is."""
    async with site(tmp_path) as here:
        await here.create_claim("c", result(), result(NIC, "nic-0"))
        a = await here.create_bound_pod("a", "c")
        async with here.agent():
            await here.prepare_all(a)
        damage(here)
        await here.delete("a")
        async with here.agent():
            await here.wait_until_empty()
        assert here.gpu.calls[-1] == here.nic.calls[-1] == ("unprepare", ("c",))


@pytest.mark.parametrize("lines", [1, 2, 3])
async def test_an_unfinished_change_is_dropped_and_what_depended_on_it_is_repeated(tmp_path, lines):
    """The file was cut within its first, second or third change: whichever it was, nothing stays behind."""
    async with site(tmp_path) as here:
        for name in ("c", "d"):
            await here.create_claim(name)
        a, b = await here.create_bound_pod("a", "c"), await here.create_bound_pod("b", "d")
        async with here.agent():
            await here.prepare_all(a, b)
        written = here.checkpoint.read_bytes().splitlines(keepends=True)
        here.checkpoint.write_bytes(b"".join(written[:lines]) + written[lines][:-20])
        async with here.agent(a, b):
            assert any("an unfinished change" in line for line in here.log)
            assert here.gpu.prepared <= {held.name for held in here.preparer.record.claims}
            await here.prepare_all(a, b)
            await here.release_all(a, b)
            await here.wait_until_empty()
        assert list(here.checkpoint.parent.glob("claims.json.damaged-*")) == []


async def test_a_record_that_is_too_old_is_made_whole(tmp_path):
    """Somebody put back yesterday's copy: what was prepared since is known, what was given back is asked."""
    async with site(tmp_path) as here:
        for name in ("before", "since"):
            await here.create_claim(name)
        a, b = await here.create_bound_pod("a", "before"), await here.create_bound_pod("b", "since")
        async with here.agent():
            await here.prepare_all(a)
            shutil.copy(here.checkpoint, tmp_path / "copy")
            await here.release_all(a)
            await here.prepare_all(b)
            await here.until(here.list_announced, lambda found: found == ["since"])
        shutil.copy(tmp_path / "copy", here.checkpoint)
        async with here.agent(a, b):
            assert {held.name: held.state for held in here.preparer.record.claims} == {
                "before": NodeClaimStage.PREPARING,
                "since": NodeClaimStage.PREPARING,
            }
            await here.prepare_all(b)
            await here.release_all(a, b)
            await here.wait_until_empty()


async def test_a_checkpoint_of_a_later_version_keeps_the_agent_from_starting(tmp_path):
    async with site(tmp_path) as here:
        StateFile("dray node checkpoint", 3).write(here.checkpoint, {"claims": []})
        with pytest.raises(UnsupportedVersionError, match="has version 3, this program knows up to 2"):
            async with here.agent():
                pass
        assert here.checkpoint.exists()


async def test_a_lost_record_waits_for_the_server(tmp_path):
    async with site(tmp_path) as here:
        await here.create_claim("c")
        a = await here.create_bound_pod("a", "c")
        async with here.agent():
            await here.prepare_all(a)
        deleted(here)
        tries: list[object] = []

        async def away(request):
            if "preparations" in request.path and len(tries) < 2:
                tries.append(request)
                raise ServerUnreachableError("the server is away", sent=False)

        here.transport.before = away
        async with here.agent(a):
            assert len(tries) == 2
            assert [held.name for held in here.preparer.record.claims] == ["c"]


async def test_a_whole_record_does_not_wait_for_the_server(tmp_path):
    async with site(tmp_path) as here:
        await here.create_claim("c")
        a = await here.create_bound_pod("a", "c")
        async with here.agent():
            await here.prepare_all(a)
        here.cut_connection()
        async with here.agent(a):
            await here.prepare_all(a)
        assert len(here.gpu.calls) == 1


async def test_a_pod_that_cannot_be_understood_any_more_keeps_what_might_be_its_own(tmp_path):
    """Record lost, claims wiped from the pod's status: nothing of its namespace is taken from under it."""
    async with site(tmp_path) as here:
        await here.make(template("t"))
        document = await here.make(pod("p", by_template("gpu")))
        await here.make(claim("made", ownerReferences=[owner(document, controller=True)]))
        await here.set_allocation("made", result())
        await here.reserve("made", "p")
        said = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "made"}]}}
        await here.client.patch(POD, "p", MergePatch(said), "default", subresource="status")
        await here.bind("p", NODE)
        async with here.agent():
            await here.prepare_all(await here.pod("p"))
        deleted(here)
        wiped = {"status": {"resourceClaimStatuses": None}}
        await here.client.patch(POD, "p", MergePatch(wiped), "default", subresource="status")
        seen = await here.pod("p")
        async with here.agent(seen):
            assert list(here.preparer.list_users()) == [seen.metadata.uid]
            assert here.gpu.prepared == {"made"}
            await here.release_all(seen)
            await here.wait_until_empty()


async def test_a_preparation_names_the_drivers_to_call(tmp_path):
    async with site(tmp_path) as here, here.agent():
        made = await here.create_claim("c", result(), result(NIC, "nic-0"))
        await here.prepare_all(await here.create_bound_pod("a", "c"))
        [standing] = (await here.client.list(Preparation)).items
        assert standing.metadata.name == f"{made.metadata.uid}.{NODE}"
        assert standing.metadata.annotations == {"dray.dev/drivers": "gpu.example.com,nic.example.com"}
        assert standing.spec.claim.uid == made.metadata.uid


@pytest.mark.parametrize(("node", "claimed"), [("node-b", "c"), (NODE, "d")])
async def test_a_preparation_of_that_name_with_another_claim_is_no_announcement(tmp_path, node, claimed):
    """Somebody took the name: the server would not keep our devices for us."""
    async with site(tmp_path) as here, here.agent():
        made = await here.create_claim("c")
        other = {"c": made, "d": await here.create_claim("d")}[claimed]
        named = {"namespace": "default", "name": claimed, "uid": other.metadata.uid}
        await here.make(
            {
                "apiVersion": "dray.dev/v1alpha1",
                "kind": "Preparation",
                "metadata": {"name": f"{made.metadata.uid}.{NODE}"},
                "spec": {"nodeName": node, "claim": named},
            }
        )
        a = await here.create_bound_pod("a", "c")
        answer = await here.preparer.prepare(a)
        assert getattr(answer, "reason", "") == "PreparationNotWritten"
        assert here.gpu.calls == []
        await here.release_all(a)
        if node != NODE:  # what belongs to another node is not ours to delete, and nothing to wait for
            await here.until(lambda: _claims(here), lambda found: not found)
            assert await here.list_announced() == [claimed]


async def _claims(here: Site) -> tuple[object, ...]:
    return here.preparer.record.claims
