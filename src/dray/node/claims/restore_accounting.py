"""Accounting after a restore: reports the devices of this node to a server restored from a backup.

Theory of operation: a restored server may not know claims whose devices drivers on this node have prepared,
and it allocates such devices to no one until every node has reported. Whenever the informer lists the Node
object again, as it does after each restore, the agent asks the server for the id of its last restore. If the
Node's annotation names another one, the agent reports every announced claim that drivers may have prepared,
device by device, whether or not the claim object still exists, and deletes every Preparation of this node
that the record does not know. Then it writes the id of the restore to the annotation.

Claims change meanwhile. A claim that is released while it is reported is withdrawn again. The server refuses
new preparations of this node until the report is complete, so that none is missed.

Rules for this file: it reports what the record says, and prepares or releases nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dray.api.core import Node
from dray.api.preparation import ACCOUNTED_ANNOTATION, NO_RESTORE, Preparation, PreparationDevice
from dray.client.client import Client
from dray.client.patches import MergePatch
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.node.claims.driver_calls import CheckpointedCalls
from dray.node.claims.preparations import NodePreparations
from dray.node.claims.preparer_options import ClaimPreparerOptions
from dray.node.claims.record import NodeClaimStage, RecordedClaim
from dray.tasks import wait_for_first


def list_held_devices(claim: RecordedClaim) -> tuple[PreparationDevice, ...]:
    """List the devices of a claim that drivers may have prepared; admin access occupies none."""
    found = (
        PreparationDevice(driver=part.driver, pool=key.pool, device=key.device, share_id=key.share_id)
        for part in claim.parts
        if part.state is not NodeClaimStage.WANTED
        for key in part.wanted
        if not key.admin
    )
    return tuple(dict.fromkeys(found))


class RestoreAccounting:
    """Reports the prepared devices of one node after each restore."""

    def __init__(
        self,
        client: Client,
        calls: CheckpointedCalls,
        preparations: NodePreparations,
        options: ClaimPreparerOptions,
        on_reported: Callable[[], None],
    ) -> None:
        """`on_reported` is called after each report: pods refused until then can be retried."""
        self._client = client
        self._calls = calls
        self._preparations = preparations
        self._options = options
        self._on_reported = on_reported
        self._triggered = asyncio.Event()

    def trigger(self) -> None:
        """Check soon whether the server was restored."""
        self._triggered.set()

    async def run(self) -> None:
        """Report after each restore, until cancelled."""
        backoff = Backoff(self._options.time_source, initial=0.5, maximum=10.0)
        while True:
            self._triggered.clear()
            try:
                await self.report_after_restore()
            except CALL_ERRORS as error:
                self._options.log("cannot report prepared devices to the server", cause=str(error))
                await wait_for_first(self._triggered.wait(), backoff.wait())
            else:
                backoff.reset()
                await self._triggered.wait()

    async def report_after_restore(self) -> None:
        """Report the devices of this node, unless they were reported since the server's last restore."""
        if not await self._preparations.is_served():
            return
        restore = await self._preparations.read_restore_id()
        noted = self._options.get_node().metadata.annotations.get(ACCOUNTED_ANNOTATION)
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
            self._options.log("reported prepared devices to a restored server", restore=restore)
            self._on_reported()

    @property
    def _node_name(self) -> str:
        return self._options.get_node().metadata.name

    async def _report_all(self) -> None:
        existing = {each.spec.claim.uid: each for each in await self._preparations.list_existing() or ()}
        for claim in self._calls.record.claims:
            if claim.uid in self._preparations.announced and not claim.classic:
                await self._report_claim(claim, existing.get(claim.uid))
        for uid, preparation in existing.items():
            if self._calls.record.find_claim(uid) is None:
                await self._preparations.delete_stale(preparation)

    async def _report_claim(self, claim: RecordedClaim, existing: Preparation | None) -> None:
        devices = list_held_devices(claim)
        if not devices or (existing is not None and existing.spec.devices == devices):
            return
        await self._preparations.report_devices(claim, devices, existing)
        current = self._calls.record.find_claim(claim.uid)
        if current is None or not current.parts:
            # It was released meanwhile, and its withdrawal may have reached the server before the report.
            problem = await self._preparations.withdraw(claim)
            if problem:
                self._options.log("cannot delete the Preparation of a released claim", cause=problem)
