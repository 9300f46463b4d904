"""Batches: transactions that are submitted at the same time are sent to the server as one.

Theory of operation: a batch takes what waits when it starts: the transactions of this turn of the event loop,
and those that came while another batch was on its way. So a transaction never waits for later ones, and
batches grow by themselves under load. They are sent in the order in which they were submitted, as one
transaction, and each caller gets its own part of the response.

A batch is carried out as a whole or not at all, so one refusal would refuse all of it. Nothing was written
then: the transaction that was refused is put aside, the rest is sent again together, and what was put aside
is sent alone after it. It gets the answer that it alone would have got at that moment. When the server
refuses too often, or for a reason that names no write, each is sent alone: n transactions never need more
than n requests and a few. When nobody knows whether the batch was carried out, that is the answer for all of
it.

A batch of one write is sent as that write. Two transactions that write the same object are never in one
batch, because the second one may leave out in a transaction what it must say alone.

A request that takes long (a server that asks to wait, a webhook that reviews a single write) does not hold up
the others: after `PATIENCE_SECONDS` the next batch is sent beside it.

Rules for this file: it never looks into a write. A batch belongs to its callers: when the last one of them is
cancelled, it is cancelled, too, and that caller waits until it has ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from dray.client.errors import ApiError
from dray.client.object_refs import ObjectKey
from dray.client.rest_client import RestClient
from dray.client.transactions.declined_writes import DeclinedWrites
from dray.client.transactions.transaction_requests import (
    build_transaction_request,
    find_refused_write,
    name_refused_write,
    split_response,
)
from dray.client.transport import TransportResponse
from dray.client.write_requests import ObjectWrite

MAX_BATCH_WRITES: Final = 32
"""The most writes of several transactions in one batch. The server decides them without a pause."""
MAX_IN_FLIGHT: Final = 1
"""How many batches are on their way at a time."""
PATIENCE_SECONDS: Final = 0.1
"""So long others wait for a batch that is on its way."""
MAX_REFUSALS: Final = 2
"""So many times a part of a batch is refused before each transaction is sent alone."""

_BATCH_CODES: Final = frozenset({400, 403, 404, 405, 413, 422, 501})
"""Codes of errors that may be about the batch, and not about each of its writes; nothing was written."""
_DECLINED_CODES: Final = frozenset({422, 501})
_SERVER_CODES: Final = frozenset({401, 429})


class _Submission:
    """The writes of one transaction, and the answer that its caller waits for."""

    __slots__ = ("answer", "batch", "keys", "writes")

    def __init__(self, writes: Sequence[ObjectWrite]) -> None:
        self.writes = writes
        self.keys = {(write.kind.qualified_name, write.key) for write in writes if write.key.name}
        self.answer: asyncio.Future[Sequence[TransportResponse]] = asyncio.get_running_loop().create_future()
        self.batch: _Batch | None = None

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class _Batch:
    """Submissions that are sent together, and the task that sends them."""

    __slots__ = ("submissions", "task")

    def __init__(self, submissions: Sequence[_Submission], task: asyncio.Task[None]) -> None:
        self.submissions, self.task = submissions, task

    async def leave(self) -> None:
        """Take note that a caller is cancelled; the last one cancels the batch, and waits for its end."""
        if self.task.done() or not all(each.answer.done() for each in self.submissions):
            return
        if not self.task.cancelling():  # a second time would interrupt its clean-up
            self.task.cancel()
        await asyncio.wait([self.task])


class TransactionBatcher:
    """Sends the transactions of one client in batches."""

    def __init__(self, rest_client: RestClient, declined: DeclinedWrites) -> None:
        self._rest_client, self._declined = rest_client, declined
        self._queue: deque[_Submission] = deque()  # as long as there are callers that wait
        self._tasks: set[asyncio.Task[None]] = set()
        self._awaited: set[asyncio.Task[None]] = set()
        """The tasks that others wait for."""

    async def submit(self, writes: Sequence[ObjectWrite]) -> Sequence[TransportResponse]:
        """Send writes that belong together; return the responses to them, or raise their refusal."""
        submission = _Submission(writes)
        self._queue.append(submission)
        self._start_sending()
        try:
            return await submission.answer
        except asyncio.CancelledError:
            if submission.batch is not None:
                await submission.batch.leave()
            raise

    def _start_sending(self) -> None:
        if self._queue and len(self._awaited) < MAX_IN_FLIGHT:
            task = asyncio.create_task(self._send_next())
            self._tasks.add(task)
            self._awaited.add(task)
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._release(task)

    def _release(self, task: asyncio.Task[None]) -> None:
        """Let nobody wait for a task any more."""
        self._awaited.discard(task)
        self._start_sending()

    async def _send_next(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        submissions = self._take_next(task)
        patience = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._release, task)
        try:
            await self._send(submissions)
        except Exception as failed:
            for each in submissions:
                each.fail(failed)
        finally:
            patience.cancel()
            for each in submissions:
                each.answer.cancel()  # no answer came: the event loop is ending

    def _take_next(self, task: asyncio.Task[None]) -> list[_Submission]:
        """Take the submissions of the next batch, without those whose callers are gone."""
        taken: list[_Submission] = []
        batch = _Batch(taken, task)
        keys: set[tuple[str, ObjectKey]] = set()
        count = 0
        while self._queue:
            found = self._queue[0]
            if not found.answer.done():
                count += len(found.writes)
                if taken and (count > MAX_BATCH_WRITES or not keys.isdisjoint(found.keys)):
                    break
                keys |= found.keys
                found.batch = batch
                taken.append(found)
            self._queue.popleft()
        return taken

    async def _send(self, submissions: Sequence[_Submission]) -> None:
        rest = list(submissions)
        refused: list[_Submission] = []
        while len(rest) > 1 and len(refused) < MAX_REFUSALS:
            try:
                await self._send_together(rest)
                rest = []
            except ApiError as error:
                number = _find_refused(rest, error)
                if number is None:
                    self._remember_declined(rest, error)
                    break
                self._remember_declined(rest[number : number + 1], error)
                refused.append(rest.pop(number))
                rest = [each for each in rest if not each.answer.done()]
        for each in (*rest, *refused):
            if not each.answer.done():
                await self._send_alone(each)

    async def _send_together(self, submissions: Sequence[_Submission]) -> None:
        writes = [write for each in submissions for write in each.writes]
        response = await self._rest_client.call(build_transaction_request(writes))
        parts = split_response(response, len(writes))
        start = 0
        for each in submissions:
            end = start + len(each.writes)
            if not each.answer.done():
                each.answer.set_result(parts[start:end])
            start = end

    async def _send_alone(self, submission: _Submission) -> None:
        try:
            if len(submission.writes) == 1:
                parts: Sequence[TransportResponse] = (await self.send_single(submission.writes[0]),)
            else:
                await self._send_together([submission])
                return
        except Exception as failed:
            submission.fail(failed)
            return
        if not submission.answer.done():
            submission.answer.set_result(parts)

    async def send_single(self, write: ObjectWrite) -> TransportResponse:
        """Send one write by itself."""
        try:
            return await self._rest_client.call(write.request)
        except ApiError as refused:
            if _is_about_server(refused):
                raise
            raise name_refused_write(refused) from None

    def _remember_declined(self, submissions: Sequence[_Submission], error: ApiError) -> None:
        """Remember single writes that the server does not want in a transaction, and send such alone."""
        if error.code in _DECLINED_CODES and (error.code == 501 or find_refused_write(error) is None):
            for each in submissions:
                if len(each.writes) == 1:
                    self._declined.remember(each.writes)


def _find_refused(submissions: Sequence[_Submission], error: ApiError) -> int | None:
    """Return which submission was refused, None when each may be; raise an error that is about all."""
    position = find_refused_write(error)
    if position is None:
        if error.code in _BATCH_CODES:
            return None
        raise error
    for number, each in enumerate(submissions):
        position -= len(each.writes)
        if position < 0:
            return number
    raise error


def _is_about_server(error: ApiError) -> bool:
    """Whether an error is about the server or the user rather than about the write."""
    return error.code in _SERVER_CODES or error.code >= 500
