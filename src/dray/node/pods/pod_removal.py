"""The end of a pod on the server: its last status, the Preparations of its claims, and its deletion.

Theory of operation: when a pod has ended and its claims are released, the agent has up to three kinds of
writes left: the final status, the deletion of each Preparation, and, when somebody deleted the pod, its
removal. On a server with transactions they are one call. Otherwise, and when the server refuses one of them,
each is written alone: the status by `PodStatusWriter`, the Preparations by the releaser in the background,
the removal here, all with retries.

Rules for this file: writes only; the worker decides when a pod has ended.
"""

from __future__ import annotations

from dray.api.core import Pod
from dray.client.client import Client, DeleteOptions
from dray.client.errors import NotFoundError
from dray.client.object_refs import ObjectKey
from dray.client.patches import StrategicMergePatch
from dray.client.rest_client import CALL_ERRORS
from dray.client.transactions.object_transaction import ObjectTransaction
from dray.node.claims.preparer import PodClaimPreparer
from dray.telemetry.logs import StructuredLogger


class PodRemoval:
    """Writes the end of one pod."""

    def __init__(
        self, client: Client, claims: PodClaimPreparer, key: ObjectKey, uid: str, log: StructuredLogger
    ) -> None:
        self._client, self._claims, self._log = client, claims, log
        self._key, self._uid = key, uid
        self.done = False
        """Whether the server has deleted the pod."""

    async def write_last(self, status: StrategicMergePatch, *, delete: bool) -> bool:
        """Write the last status together with everything else; return False when that is not possible."""
        namespace, name = self._key
        transaction = ObjectTransaction().patch(Pod, name, status, namespace, subresource="status")
        if delete:
            transaction.delete(Pod, name, namespace, self._options)
        written = await self._claims.commit_withdrawal(self._uid, transaction)
        self.done = written and delete
        return written

    async def try_delete(self) -> bool:
        """Delete the pod on the server, and no other of its name; return False to try again."""
        namespace, name = self._key
        try:
            await self._client.delete(Pod, name, namespace, self._options)
        except NotFoundError:
            pass
        except CALL_ERRORS as error:
            # Includes a conflict: when another pod has its name, the informer reports the deletion.
            self._log.debug("a pod is not deleted yet", pod=self._key, error=error)
            return False
        self.done = True
        return True

    @property
    def _options(self) -> DeleteOptions:
        return DeleteOptions(uid=self._uid, grace_seconds=0)
