"""The guard as a service: answers reviews while it leads, and forwards them to the leader otherwise.

Theory of operation: all guards listen, and the Service of the webhook may reach any of them. One leads and
decides. A review that comes while nobody leads, or while the leader takes over, waits for a while; then it is
refused with 503, and whoever wrote the claim tries again.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from dray.api.json_text import write_json
from dray.client.client import Client
from dray.client.leases import LeaderElector, LeadershipLostError
from dray.errors import InputError
from dray.guard import metrics as guard_metrics
from dray.guard.deciding_leader import DecidingLeader, NotServingError
from dray.guard.forwarding import (
    FORWARDED_PATH,
    LeaderUnreachableError,
    ReviewForwarder,
    format_leader_identity,
    parse_leader_address,
)
from dray.guard.options import NAMESPACE, GuardOptions
from dray.guard.reviews import (
    AllocationReview,
    InvalidReviewError,
    build_allowed,
    build_denied,
    build_unavailable,
    parse_review,
)
from dray.guard.tls_secret import CERTIFICATE_FILE, KEY_FILE, TlsSecret
from dray.private_files import create_memory_directory
from dray.tasks import cancel_and_wait
from dray.telemetry.metrics import MetricsRegistry
from dray.webhook_server import VALIDATE_PATH, WebhookListenOptions, serve_reviews

WAIT_SECONDS: Final = 3.0
"""How long a review waits for a guard that decides."""
_POLL_SECONDS: Final = 0.02
_READINESS_SECONDS: Final = 0.25


class GuardService:
    """One guard of a cluster."""

    def __init__(self, client: Client, options: GuardOptions | None = None) -> None:
        self._options = options or GuardOptions()
        self._client = client
        self._guarded_client = client.guard_writes(self._is_leader)
        self._log = self._options.log
        self._clock = client.options.time_source.clock
        self._elector: LeaderElector | None = None
        self._leader: DecidingLeader | None = None
        self._forwarder: ReviewForwarder | None = None
        self.ready = asyncio.Event()
        """Set while this guard can answer: it decides, or knows who does."""
        self.url = ""
        """Where it listens, once it does."""
        self.metrics = MetricsRegistry(guard_metrics.METRIC_DEFINITIONS)
        self._register_gauges()

    def _register_gauges(self) -> None:
        def collect(name: str, read: str) -> None:
            self.metrics.add_callback(name, lambda: [((), self._read_gauge(read))])

        collect(guard_metrics.ADMITTED_UNSEEN, "admitted")
        collect(guard_metrics.CLAIMS, "claims")
        collect(guard_metrics.ORPHANS, "orphans")
        collect(guard_metrics.CONFLICTS, "conflicts")
        self.metrics.add_callback(guard_metrics.LEADER, lambda: [((), float(self._is_leader()))])
        self.metrics.add_callback(guard_metrics.SERVING, lambda: [((), float(self._is_serving()))])

    def _read_gauge(self, name: str) -> float:
        return 0.0 if self._leader is None else float(len(getattr(self._leader.ledger, name)))

    def _is_leader(self) -> bool:
        return self._elector is not None and self._elector.is_leader

    def _is_serving(self) -> bool:
        return self._leader is not None and self._leader.is_serving

    # --- the process ---

    async def run(self) -> None:
        """Serve until cancelled."""
        async with AsyncExitStack() as stack:
            directory = await self._provide_certificates(stack)
            options = self._options
            self._forwarder = ReviewForwarder(directory, options.service_names[0])
            stack.push_async_callback(self._forwarder.close)
            answers = {VALIDATE_PATH: self.answer, FORWARDED_PATH: self.answer_forwarded}
            listen = WebhookListenOptions(
                options.listen_address, directory / CERTIFICATE_FILE, directory / KEY_FILE
            )
            self.url = await stack.enter_async_context(serve_reviews(answers, listen, self._log))
            self._log.info("the webhook listens", url=self.url)
            readiness = asyncio.create_task(self._update_readiness())
            stack.push_async_callback(cancel_and_wait, readiness)
            await self._elect()

    async def _provide_certificates(self, stack: AsyncExitStack) -> Path:
        options = self._options
        if options.certificate_directory is not None:
            return options.certificate_directory
        directory = Path(stack.enter_context(create_memory_directory("dray-guard-")))
        secret = TlsSecret(self._client, directory, options.service_names, self.metrics, self._log)
        await secret.load()
        stack.push_async_callback(cancel_and_wait, asyncio.create_task(secret.run()))
        return directory

    async def _elect(self) -> None:
        options = self._options
        host = options.advertised_host or self.url.removeprefix("https://").rpartition(":")[0]
        identity = format_leader_identity(options.identity, f"{host}:{self.url.rpartition(':')[2]}")
        while True:
            elector = LeaderElector(
                self._client, options.lease_name, NAMESPACE, identity, options.lease_timing
            )
            self._elector = elector
            try:
                await elector.run(self._lead)
            except LeadershipLostError as lost:
                self._log.warning("this guard no longer leads", why=str(lost))

    async def _lead(self) -> None:
        leader = DecidingLeader(self._guarded_client, self._options, self.metrics, self._is_leader)
        self._leader = leader
        try:
            await leader.run()
        finally:
            self._leader = None

    async def _update_readiness(self) -> None:
        while True:
            if self._is_serving() or self._find_leader_address():
                self.ready.set()
            else:
                self.ready.clear()
            await asyncio.sleep(_READINESS_SECONDS)

    def _find_leader_address(self) -> str:
        """Where another guard leads; empty when none does, or this one."""
        elector = self._elector
        if elector is None or elector.leader == elector.identity:
            return ""
        return parse_leader_address(elector.leader)

    # --- reviews ---

    async def answer(self, body: bytes) -> bytes:
        """Answer a review of an API server."""
        review = self._parse(body)
        began = self._clock.monotonic()
        while True:
            if self._is_serving():
                return await self._decide(review, began)
            address = self._find_leader_address()
            if address and self._forwarder is not None:
                try:
                    answer = await self._forwarder.forward(address, body)
                    self.metrics.count(guard_metrics.REVIEWS, "forwarded")
                    return answer
                except LeaderUnreachableError as failed:
                    why = str(failed)
            else:
                why = "no guard leads at the moment"
            if self._clock.monotonic() - began > WAIT_SECONDS:
                return self._refuse(review, why)
            await asyncio.sleep(_POLL_SECONDS)

    async def answer_forwarded(self, body: bytes) -> bytes:
        """Answer a review that another guard has forwarded."""
        return await self._decide(self._parse(body), self._clock.monotonic())

    def _parse(self, body: bytes) -> AllocationReview:
        try:
            return parse_review(body)
        except InvalidReviewError:
            self.metrics.count(guard_metrics.REVIEWS, "invalid")
            raise

    async def _decide(self, review: AllocationReview, began: float) -> bytes:
        if review.allocated is None:
            self.metrics.count(guard_metrics.REVIEWS, "unchanged")
            return write_json(build_allowed(review.uid))
        if not review.holder.uid:
            raise InputError("expected a claim with a `metadata.uid`")
        leader = self._leader
        if leader is None:
            return self._refuse(review, f"guard {self._options.identity} does not lead")
        try:
            verdict = await leader.decide(review)
        except NotServingError as refused:
            return self._refuse(review, str(refused))
        self.metrics.observe(guard_metrics.DECISION_SECONDS, self._clock.monotonic() - began)
        if verdict.is_granted:
            return write_json(build_allowed(review.uid))
        self.metrics.count(guard_metrics.REVIEWS, "denied")
        for denial in verdict.denials:
            self.metrics.count(guard_metrics.DENIALS, denial.reason.value)
        self._log.info("denied", claim=str(review.holder), why=verdict.denials[0].message)
        return write_json(build_denied(review.uid, verdict.denials))

    def _refuse(self, review: AllocationReview, why: str) -> bytes:
        self.metrics.count(guard_metrics.REVIEWS, "refused")
        return write_json(build_unavailable(review.uid, why))
