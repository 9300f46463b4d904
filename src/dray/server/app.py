"""The API server: assembles the application and its background tasks from a store and options.

Each component is constructed here once and gets its collaborators as arguments; none looks another up.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST

from dray.api.kinds import KINDS, Kind
from dray.api.strategies.gated_fields import FeatureGateFilter
from dray.clock import Clock, SystemClock
from dray.server.admission.change import AdmissionRule
from dray.server.admission.claim_names import UniqueClaimNames
from dray.server.admission.limit_ranges import LimitRangeAdmission
from dray.server.admission.namespace_lifecycle import NamespaceLifecycle
from dray.server.admission.object_count_limit import ObjectCountLimit
from dray.server.admission.resource_quota import ResourceQuotaAdmission
from dray.server.admission.taint_rule_warnings import TaintRuleWarnings
from dray.server.admission.webhooks.service_addresses import ServiceAddresses, WebhookReachabilityRule
from dray.server.admission.webhooks.webhook_admission import WebhookAdmission
from dray.server.admission.webhooks.webhook_client import WebhookClient
from dray.server.audit.log import AuditLog
from dray.server.auth.access_control import ServerAccessControl
from dray.server.auth.authn.authentication import Authenticator
from dray.server.auth.authn.client_renewal import ClientCertificateEndpoint
from dray.server.auth.authn.service_account_tokens import ServiceAccountTokens
from dray.server.auth.authn.token_file import StaticTokens
from dray.server.auth.authn.token_requests import TokenRequestIssuer
from dray.server.auth.authz.authorizer import UnionAuthorizer
from dray.server.auth.authz.bootstrap_roles import build_bootstrap_documents
from dray.server.auth.authz.reviews import AccessReviews
from dray.server.auth.restriction.write_rules import build_write_rules
from dray.server.background.bootstrap import build_initial_objects, create_initial_objects
from dray.server.background.compaction import compact_history
from dray.server.background.event_expiry import EventExpiry
from dray.server.background.garbage_collector import GarbageCollector
from dray.server.background.stored_defaults import complete_stored_objects
from dray.server.discovery.documents import DiscoveryEndpoints
from dray.server.http.application import ApiApplication
from dray.server.http.endpoints import Endpoint, NonResourceEndpoints
from dray.server.http.flow_control import FlowController
from dray.server.http.limits import ServerLimits
from dray.server.http.requests import ApiCall, ApiRequest, ApiResponse, build_json_response
from dray.server.http.responses import ResponseWriter
from dray.server.http.routing import Router
from dray.server.ledger.admission import LedgerAdmission
from dray.server.ledger.endpoints import AdministrationEndpoints
from dray.server.ledger.reconciliation import audit_cached_ledger
from dray.server.ledger.restore_quarantine import RestoreQuarantine
from dray.server.objects.identifiers import generate_uids
from dray.server.observability import metrics as names
from dray.server.observability.metrics import ApiServerMetrics
from dray.server.observability.request_recorder import RequestRecorder, register_gauges
from dray.server.observability.webhook_recorder import WebhookRecorder
from dray.server.openapi import OpenApiDocuments
from dray.server.registry.deleter import ObjectDeleter
from dray.server.registry.dispatcher import RequestDispatcher, WriteVerbs
from dray.server.registry.object_registry import ObjectRegistry, WriteObserver, WriteRegistry
from dray.server.registry.patcher import ObjectPatcher
from dray.server.registry.pod_logs import PodLogs
from dray.server.registry.pod_subresources import PodSubresources
from dray.server.registry.reader import StoredObjectReader
from dray.server.registry.review_endpoints import ReviewEndpoints
from dray.server.registry.watch_server import WatchServer
from dray.server.registry.writer import ObjectWriter
from dray.server.transactions.endpoint import TransactionEndpoint
from dray.server.transactions.parsing import TransactionParser
from dray.server.transactions.staged_registry import StagedRegistry
from dray.server.watch.cache import WatchCache
from dray.server.watch.cache_verifier import CacheComparison, CacheVerifier
from dray.store import SequenceStore, Store
from dray.store.errors import StoreClosedError
from dray.store.records import takes_records
from dray.telemetry.logs import StructuredLogger
from dray.x509_certificates import RENEWAL_PATH

LEDGER_COMPARISON_SECONDS: Final = 600.0


@dataclass(frozen=True)
class ApiServerOptions:
    """The options of an API server."""

    gates: FeatureGateFilter
    keys: Path
    """The directory of keys and certificates."""
    audit: Path
    """The file of the audit log."""
    log: StructuredLogger
    address: str = ""
    ca_pem: str = ""
    tokens: Path | None = None
    anonymous: bool = False
    ledger: bool = True
    """Only tests switch the ledger off, to show what happens without it."""
    limits: ServerLimits = field(default_factory=ServerLimits)
    clock: Clock = field(default_factory=SystemClock)
    webhook_services: ServiceAddresses = field(default_factory=dict)
    """The addresses of services that serve admission webhooks."""
    random_bytes: Callable[[int], bytes] = os.urandom
    """Random bytes for the uids of objects."""
    random_int: Callable[[int], int] = random.randrange
    """Random numbers below a limit, for generated names and the length of watches."""


class ApiServer:
    """An API server over a store: `run` yields the application while its background tasks run."""

    def __init__(self, store: Store, options: ApiServerOptions) -> None:
        self._store = store
        self._commits_sequences = isinstance(store, SequenceStore)
        self._options = options
        self.cache = WatchCache(store)
        self.metrics = ApiServerMetrics()
        self._audit = AuditLog(options.audit, options.clock)
        self.pod_logs = PodLogs(self.cache, options.keys, options.clock)
        self._webhook_client = WebhookClient(options.webhook_services)
        self._cache_verifier = CacheVerifier(self.cache, store, self._record_comparison)
        self._quotas = ResourceQuotaAdmission(
            self.cache, on_denied=partial(self.metrics.count, names.QUOTA_DENIED)
        )
        self._restore_quarantine = RestoreQuarantine(
            self.cache, options.clock, options.limits.restored_seconds
        )

    @asynccontextmanager
    async def run(self) -> AsyncIterator[ApiApplication]:
        """The application, while its background tasks run."""
        await self.cache.resync()
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self.cache.follow())]
            self._audit.open()
            try:
                app, background = self._assemble()
                running += map(tasks.create_task, background)
                initial = build_initial_objects(self._options.ca_pem, self._options.clock.now())
                await create_initial_objects(app.resource_endpoint, [*initial, *build_bootstrap_documents()])
                await complete_stored_objects(app.resource_endpoint, self.cache)
                running.append(tasks.create_task(self._quotas.run_recounts(self._store)))
                yield app
            finally:
                self.end_watches()
                for task in running:
                    task.cancel()
                await self._webhook_client.close()
                await self._audit.close()

    def _assemble(self) -> tuple[ApiApplication, list[Coroutine[Any, Any, None]]]:
        """The application, and the background tasks to run beside it."""
        options, cache = self._options, self.cache
        authorizer = UnionAuthorizer(cache)
        static = StaticTokens.from_file(options.tokens) if options.tokens else None
        accounts = ServiceAccountTokens.open(options.keys, cache, clock=options.clock)
        authenticator = Authenticator(static, accounts, anonymous=options.anonymous, clock=options.clock)
        reviews = ReviewEndpoints(
            cache,
            AccessReviews(authorizer, authenticator, accounts),
            TokenRequestIssuer(cache, accounts),
        )
        registry = self._build_registry(authorizer)
        access_control = ServerAccessControl(authenticator, authorizer)
        dispatcher = self._build_dispatcher(registry, reviews, access_control)
        served = [kind for kind in KINDS if options.gates.is_served(kind)]
        router = Router(served, transactions=self._commits_sequences)
        app = ApiApplication(
            router,
            access_control,
            self._build_flow_control(),
            RequestRecorder(self.metrics, options.log, self._audit, self._build_record_condition(registry)),
            dispatcher.answer,
            self._build_endpoints(served, accounts).answer,
            options.clock,
            TransactionParser(router, dispatcher.verbs).parse,
            options.limits.max_body_bytes,
        )
        background = [
            self._build_collector(registry, dispatcher).run(),
            EventExpiry(cache, registry, options.clock).run(),
            compact_history(self._store, options.clock.monotonic),
            self._cache_verifier.run(),
            self._check_ledger(),
            self._restore_quarantine.run_until_settled(self._store, log=options.log),
        ]
        return app, background

    def _build_collector(self, registry: ObjectRegistry, dispatcher: RequestDispatcher) -> GarbageCollector:
        return GarbageCollector(
            self.cache,
            registry,
            dispatcher.verbs.deleter,
            self._log_collection_failure,
            leaves_claims=self._commits_sequences,
        )

    def _build_registry(self, authorizer: UnionAuthorizer) -> ObjectRegistry:
        return ObjectRegistry(
            self._store,
            self.cache,
            self._build_admission_rules(authorizer),
            self._build_webhook_admission(),
            WriteObserver(self._record_commit, self._audit.record_internal),
            self._options.limits.max_object_bytes,
        )

    async def _check_ledger(self) -> None:
        """Compare ledger and claims at the start and periodically: another program may write to the store."""
        known = 0
        while True:
            report = await audit_cached_ledger(self.cache)
            differences = len(report.findings)
            self.metrics.set(names.LEDGER_DIFFERENCES, differences)
            if differences and differences != known:
                self._options.log.warning(
                    "ledger and claims do not agree; `dray doctor ledger` shows how and can repair it",
                    differences=differences,
                    first=report.findings[0],
                )
            known = differences
            await asyncio.sleep(LEDGER_COMPARISON_SECONDS)

    def _log_collection_failure(self, why: str) -> None:
        self._options.log.warning("garbage cannot be collected", why=why)

    def _build_record_condition(self, registry: ObjectRegistry) -> Callable[[ApiCall], bool]:
        """Whether nothing of a call happens before its first commit, which then writes its audit record."""
        if not takes_records(self._store):
            return lambda _call: False
        # Webhooks may act on what they review, so a call is on record before they see it.
        return lambda call: call.writes_objects and not registry.admission.webhooks

    def _build_flow_control(self) -> FlowController:
        controller = FlowController(self._options.limits, self._options.clock, self.count_refusal)
        register_gauges(self.metrics, self.cache, controller, self._audit)
        return controller

    def count_refusal(self, limit: str) -> None:
        """Count a request or connection beyond a limit."""
        self.metrics.count(names.REFUSED, limit)

    def _build_webhook_admission(self) -> WebhookAdmission:
        options = self._options
        observer = WebhookRecorder(self.metrics, options.log, self._audit)
        uids = generate_uids(options.random_bytes)
        return WebhookAdmission(self.cache, self._webhook_client, observer, options.clock, uids.__next__)

    def _record_commit(self, committed: bool, seconds: float) -> None:
        self.metrics.count(names.COMMITS if committed else names.CONFLICTS)
        if committed:
            self.metrics.observe(names.COMMIT_SECONDS, seconds)

    def _build_admission_rules(self, authorizer: UnionAuthorizer) -> list[AdmissionRule]:
        cache = self.cache
        return [
            NamespaceLifecycle(cache),
            UniqueClaimNames(cache),
            TaintRuleWarnings(cache),
            LimitRangeAdmission(cache),
            ObjectCountLimit(cache, self._options.limits.max_objects_per_namespace, self.count_refusal),
            *build_write_rules(cache, authorizer),
            LedgerAdmission(
                cache,
                restore_quarantine=self._restore_quarantine,
                enforced=self._options.ledger,
                on_denied=partial(self.metrics.count, names.LEDGER_CONFLICTS),
            ),
            self._quotas,
            WebhookReachabilityRule(self._options.webhook_services),
        ]

    def _build_dispatcher(
        self, registry: ObjectRegistry, reviews: ReviewEndpoints, access_control: ServerAccessControl
    ) -> RequestDispatcher:
        options, cache, clock = self._options, self.cache, self._options.clock
        new_uid = generate_uids(options.random_bytes).__next__
        responses = ResponseWriter(cache, clock.now)

        def build_verbs(written: WriteRegistry) -> WriteVerbs:
            writer = ObjectWriter(written, options.gates, clock, new_uid, options.random_int)
            patcher, deleter = ObjectPatcher(written, writer, clock), ObjectDeleter(written, clock)
            return WriteVerbs(writer, patcher, deleter, PodSubresources(written, deleter, clock), responses)

        staged = StagedRegistry(registry)
        transactions = TransactionEndpoint(registry, staged, build_verbs(staged), access_control.authorize)
        reader = StoredObjectReader(self._store, cache, options.limits.max_page)
        return RequestDispatcher(
            reader,
            build_verbs(registry),
            WatchServer(cache, reader, responses, options.random_int),
            responses,
            reviews.answer,
            self.pod_logs.answer,
            transactions.answer,
        )

    def _build_endpoints(
        self, served: Sequence[Kind], accounts: ServiceAccountTokens
    ) -> NonResourceEndpoints:
        transactions = self._commits_sequences
        discovery = DiscoveryEndpoints(served, self._options.address, transactions=transactions)
        openapi = OpenApiDocuments(served, transactions=transactions)
        administration = AdministrationEndpoints(
            self._store, self.cache, self._restore_quarantine, self._options.keys
        )
        renewals = ClientCertificateEndpoint(self._options.keys, self._options.clock)
        return NonResourceEndpoints(
            {
                "ping": lambda: None,
                "store": lambda: self.cache.sync_error,
                "cache": self._cache_verifier.check,
                "audit": lambda: self._audit.write_error or None,
            },
            (
                lambda request: discovery.answer(request.call.path, request.accept, request.headers),
                lambda request: openapi.answer(
                    request.call.path, request.accept, request.headers, request.call.query
                ),
            ),
            {
                ("get", "/metrics"): self._serve_metrics,
                ("get", "/openid/v1/jwks"): _build_document_endpoint(accounts.build_jwks),
                ("get", "/.well-known/openid-configuration"): _build_document_endpoint(
                    accounts.build_openid_configuration
                ),
                ("post", RENEWAL_PATH): renewals.answer,
                **administration.build_endpoints(),
            },
        )

    async def _serve_metrics(self, request: ApiRequest) -> ApiResponse:
        await self.metrics.refresh()
        return ApiResponse(200, self.metrics.render(), CONTENT_TYPE_LATEST)

    def _record_comparison(self, comparison: CacheComparison) -> None:
        self.metrics.count(names.CACHE_COMPARISONS, "equal" if comparison.equal else "different")
        if not comparison.equal:
            self._options.log.error("the cache differs from the store", difference=comparison.differences[0])

    def end_watches(self) -> None:
        """End every watch in good order; clients reconnect to another server, or to this one later."""
        self.cache.hub.close(StoreClosedError("the server is stopping"))


def _build_document_endpoint(build_document: Callable[[], Mapping[str, Any]]) -> Endpoint:
    """An endpoint that answers a document."""

    async def answer(request: ApiRequest) -> ApiResponse:
        return build_json_response(build_document())

    return answer
