"""What this node has in its hands, told to a server that goes on from an earlier copy of what it knew.

Theory of operation: after a restore the server may know nothing of claims whose devices drivers here have. It
gives such devices to nobody until every node has said what it has. So whenever the node's own object shows
itself anew, which it does after each restore, the server is asked from which restore it goes on. If that is
not the one noted on the Node, every claim that was announced and that drivers may have is told, device by
device, whatever has become of its object; a preparation that the server has from before and this node has no
claim for is deleted. When all of that was taken, the restore is noted on the Node.

Claims come and go meanwhile. What is given back while it is told is taken back again. What a pod wants to
begin is refused by the server until this is done, so that nothing comes into hands behind our back.

Rules for this file: tells what the record says; nothing is prepared or given back here.
"""

from __future__ import annotations

import asyncio

from dray.api.core import Node
from dray.api.preparation import ACCOUNTED_ANNOTATION, NO_RESTORE, Preparation, PreparationDevice
from dray.client.client import Client
from dray.client.patches import MergePatch
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.node.claims.preparer_context import ClaimPreparerContext
from dray.node.claims.record import NodeClaimStage, RecordedClaim
from dray.tasks import wait_for_first


def list_held_devices(held: RecordedClaim) -> tuple[PreparationDevice, ...]:
    """The devices of a claim that drivers may have; admin access has none."""
    found = (
        PreparationDevice(driver=part.driver, pool=key.pool, device=key.device, share_id=key.share_id)
        for part in held.parts
        if part.state is not NodeClaimStage.WANTED
        for key in part.wanted
        if not key.admin
    )
    return tuple(dict.fromkeys(found))


class RestoreAccounting:
    """Tells what one node has, after each restore."""

    def __init__(self, client: Client, context: ClaimPreparerContext) -> None:
        self._client = client
        self._context = context
        self._triggered = asyncio.Event()

    def trigger(self) -> None:
        """The server may have been restored."""
        self._triggered.set()

    async def run(self) -> None:
        """Tell what there is to tell, until cancelled."""
        backoff = Backoff(self._context.options.time_source, initial=0.5, maximum=10.0)
        while True:
            self._triggered.clear()
            try:
                await self.report_after_restore()
            except CALL_ERRORS as trouble:
                self._context.options.log("cannot tell the server what this node has", cause=str(trouble))
                await wait_for_first(self._triggered.wait(), backoff.wait())
            else:
                backoff.reset()
                await self._triggered.wait()

    async def report_after_restore(self) -> None:
        """Tell what this node has, if the server has not heard it since it was restored."""
        preparations = self._context.preparations
        if not await preparations.is_served():
            return
        restore = await preparations.read_restore_id()
        noted = self._context.options.get_node().metadata.annotations.get(ACCOUNTED_ANNOTATION)
        if noted == (restore or noted or NO_RESTORE):
            return
        node = await self._client.get(Node, self._node_name)
        noted = node.metadata.annotations.get(ACCOUNTED_ANNOTATION)
        if noted == (restore or noted or NO_RESTORE):
            return
        if restore:
            await self._report_all()
        note = {"metadata": {"annotations": {ACCOUNTED_ANNOTATION: restore or NO_RESTORE}}}
        await self._client.patch(Node, self._node_name, MergePatch(note))
        if restore:
            self._context.options.log(
                "the server was restored; it knows now what this node has", restore=restore
            )
            # Pods that were refused meanwhile need not wait for long.
            self._context.changed.notify_all()

    @property
    def _node_name(self) -> str:
        return self._context.options.get_node().metadata.name

    async def _report_all(self) -> None:
        preparations = self._context.preparations
        standing = {each.spec.claim.uid: each for each in await preparations.list_existing() or ()}
        for held in self._context.calls.record.claims:
            if held.uid in preparations.announced and not held.classic:
                await self._report_claim(held, standing.get(held.uid))
        for uid, each in standing.items():
            if self._context.calls.record.find_claim(uid) is None:
                await preparations.delete_stale(each)

    async def _report_claim(self, held: RecordedClaim, existing: Preparation | None) -> None:
        devices = list_held_devices(held)
        if not devices or (existing is not None and existing.spec.devices == devices):
            return
        preparations = self._context.preparations
        await preparations.report_devices(held, devices, existing)
        now = self._context.calls.record.find_claim(held.uid)
        if now is None or not now.parts:
            # It was given back meanwhile, and perhaps the server had heard that before.
            problem = await preparations.withdraw(held)
            if problem:
                self._context.options.log("cannot tell the server that a claim was given back", cause=problem)
