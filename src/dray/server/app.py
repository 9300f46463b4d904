"""The API server put together: from a store and a few choices to an application and the tasks behind it.

Everything the parts need is made here once and handed to them; none of them looks for another.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST

from dray.api.kinds import KINDS, Kind
from dray.api.strategies.gated_fields import FeatureGateFilter
from dray.clock import Clock, SystemClock
from dray.server.admission.change import AdmissionRule
from dray.server.admission.namespace_lifecycle import NamespaceLifecycle, UniqueClaimNames
from dray.server.admission.object_count_limit import ObjectCountLimit
from dray.server.admission.resource_quota import ResourceQuotaAdmission
from dray.server.admission.taint_rule_warnings import TaintRuleWarnings
from dray.server.admission.webhooks.service_addresses import ServiceAddresses, WebhookReachabilityRule
from dray.server.admission.webhooks.webhook_admission import WebhookAdmission
from dray.server.admission.webhooks.webhook_client import WebhookClient
from dray.server.audit.log import AuditLog
from dray.server.auth.authn.authentication import Authenticator
from dray.server.auth.authn.service_account_tokens import ServiceAccountTokens
from dray.server.auth.authn.token_file import StaticTokens
from dray.server.auth.authn.token_requests import TokenRequestIssuer
from dray.server.auth.authz.authorizer import UnionAuthorizer
from dray.server.auth.authz.bootstrap_roles import build_bootstrap_documents
from dray.server.auth.authz.impersonation import impersonate
from dray.server.auth.authz.policy_rules import build_attributes
from dray.server.auth.authz.rbac import build_forbidden
from dray.server.auth.authz.reviews import AccessReviews
from dray.server.auth.restriction.write_rules import build_write_rules
from dray.server.background.bootstrap import build_initial_objects, compact_history, create_initial_objects
from dray.server.background.event_expiry import EventExpiry
from dray.server.background.garbage_collector import GarbageCollector
from dray.server.discovery.documents import DiscoveryEndpoints
from dray.server.http.application import ApiApplication, GrantedAccess, Peer
from dray.server.http.endpoints import Endpoint, NonResourceEndpoints
from dray.server.http.flow_control import FlowController
from dray.server.http.limits import ServerLimits
from dray.server.http.requests import ApiCall, ApiRequest, ApiResponse, RequestUser, build_json_response
from dray.server.http.responses import ResponseWriter
from dray.server.http.routing import Router
from dray.server.ledger.admission import LedgerAdmission
from dray.server.ledger.backup_endpoint import BackupEndpoint
from dray.server.ledger.endpoints import LedgerEndpoints
from dray.server.ledger.reconciliation import audit_cached_ledger as audit_cached_ledger
from dray.server.ledger.restore_quarantine import RestoreQuarantine
from dray.server.objects.identifiers import generate_uids
from dray.server.observability import metrics as names
from dray.server.observability.metrics import ApiServerMetrics
from dray.server.observability.request_recorder import RequestRecorder, register_gauges
from dray.server.observability.webhook_recorder import WebhookReporter
from dray.server.openapi import OpenApiDocuments
from dray.server.registry.deleter import ObjectDeleter
from dray.server.registry.dispatcher import RequestDispatcher
from dray.server.registry.object_registry import ObjectRegistry
from dray.server.registry.patcher import ObjectPatcher
from dray.server.registry.pod_logs import PodLogs
from dray.server.registry.pod_subresources import PodSubresources
from dray.server.registry.reader import StoredObjectReader
from dray.server.registry.review_endpoints import ReviewEndpoints
from dray.server.registry.watch_server import WatchServer
from dray.server.registry.writer import ObjectWriter, WriteEnvironment
from dray.server.watch.cache import WatchCache
from dray.server.watch.cache_verifier import CacheComparison, CacheVerifier
from dray.store import Store
from dray.store.errors import StoreClosedError
from dray.telemetry.logs import StructuredLogger


@dataclass(frozen=True)
class ApiServerOptions:
    """What an administrator decides."""

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
    """Only tests switch the ledger off, to show what it is good for."""
    limits: ServerLimits = field(default_factory=ServerLimits)
    clock: Clock = field(default_factory=SystemClock)
    webhook_services: ServiceAddresses = field(default_factory=dict)
    """Where services are behind which admission webhooks answer."""


class ServerAccessControl:
    """Identity and rights of a request, in one place for the application to ask."""

    def __init__(self, authenticator: Authenticator, access: UnionAuthorizer) -> None:
        self._authenticator = authenticator
        self._access = access

    def authenticate(self, headers: Mapping[str, str], peer: Peer | None, path: str) -> RequestUser:
        return self._authenticator.authenticate(headers, peer, path)

    def authorize(self, call: ApiCall, user: RequestUser, headers: Mapping[str, str]) -> GrantedAccess:
        acting, asked = impersonate(user, headers, self._access), build_attributes(call)
        decision = self._access.authorize(acting, asked)
        if not decision.allowed:
            raise build_forbidden(asked, decision)
        return GrantedAccess(acting, decision.reason)


class ApiServer:
    """An API server over a store: `run` gives the application and everything behind it."""

    def __init__(self, store: Store, options: ApiServerOptions) -> None:
        self._store = store
        self._options = options
        self.cache = WatchCache(store)
        self.metrics = ApiServerMetrics()
        self._audit = AuditLog(options.audit, options.clock)
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
        """The application, while everything behind it runs."""
        await self.cache.resync()
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self.cache.follow())]
            self._audit.open()
            try:
                app, chores = self._assemble()
                running += map(tasks.create_task, chores)
                documents = [*build_initial_objects(self._options.ca_pem), *build_bootstrap_documents()]
                await create_initial_objects(app.resource_endpoint, documents)
                running.append(tasks.create_task(self._quotas.run_recounts(self._store)))
                yield app
            finally:
                self.end_watches()
                for task in running:
                    task.cancel()
                await self._webhook_client.close()
                await self._audit.close()

    def _assemble(self) -> tuple[ApiApplication, list[Coroutine[Any, Any, None]]]:
        """The application, and what is to be done beside it for as long as it runs."""
        choices, cache = self._options, self.cache
        access = UnionAuthorizer(cache)
        static = StaticTokens.from_file(choices.tokens) if choices.tokens else None
        accounts = ServiceAccountTokens.open(choices.keys, cache, clock=choices.clock)
        authenticator = Authenticator(static, accounts, anonymous=choices.anonymous, clock=choices.clock)
        reviews = AccessReviews(access, authenticator, accounts)
        reviewing = ReviewEndpoints(cache, reviews, TokenRequestIssuer(cache, accounts))
        registry = ObjectRegistry(
            self._store,
            cache,
            self._build_admission_rules(access),
            self._record_commit,
            choices.limits.max_object_bytes,
            self._audit.record_internal,
        )
        registry.admission = self._build_webhook_admission()
        service = self._build_dispatcher(registry, reviewing)
        served = [kind for kind in KINDS if choices.gates.is_served(kind)]
        app = ApiApplication(
            Router(served),
            ServerAccessControl(authenticator, access),
            self._build_flow_control(),
            RequestRecorder(self.metrics, choices.log, self._audit),
            service.answer,
            self._build_endpoints(served, accounts).answer,
            choices.clock,
            choices.limits.max_body_bytes,
        )
        chores = [
            GarbageCollector(cache, registry, service.deleter, self._log_collection_failure).run(),
            EventExpiry(cache, registry, choices.clock).run(),
            compact_history(self._store, choices.clock.monotonic),
            self._cache_verifier.run(),
            self._check_ledger(),
            self._restore_quarantine.run_until_settled(self._store, log=choices.log),
        ]
        return app, chores

    async def _check_ledger(self) -> None:
        """Say at the start whether ledger and claims agree; another hand may have been in the store."""
        report = await audit_cached_ledger(self.cache)
        if not report.is_consistent:
            self._options.log.warning(
                "ledger and claims do not agree; `dray doctor ledger` tells how and can repair it",
                differences=len(report.findings),
                first=report.findings[0],
            )

    def _log_collection_failure(self, why: str) -> None:
        self._options.log.warning("garbage cannot be collected", why=why)

    def _build_flow_control(self) -> FlowController:
        gate = FlowController(self._options.limits, self._options.clock, self.count_refusal)
        register_gauges(self.metrics, self.cache, gate, self._audit)
        return gate

    def count_refusal(self, limit: str) -> None:
        """Count a request or connection beyond a limit."""
        self.metrics.count(names.REFUSED, limit)

    def _build_webhook_admission(self) -> WebhookAdmission:
        choices = self._options
        told = WebhookReporter(self.metrics, choices.log, self._audit)
        return WebhookAdmission(
            self.cache, self._webhook_client, told, choices.clock, generate_uids().__next__
        )

    def _record_commit(self, committed: bool, seconds: float) -> None:
        self.metrics.count(names.COMMITS if committed else names.CONFLICTS)
        if committed:
            self.metrics.observe(names.COMMIT_SECONDS, seconds)

    def _build_admission_rules(self, access: UnionAuthorizer) -> list[AdmissionRule]:
        cache, denied = self.cache, partial(self.metrics.count, names.LEDGER_CONFLICTS)
        return [
            NamespaceLifecycle(cache),
            UniqueClaimNames(cache),
            TaintRuleWarnings(cache),
            ObjectCountLimit(cache, self._options.limits.max_objects_per_namespace, self.count_refusal),
            *build_write_rules(cache, access),
            LedgerAdmission(
                cache,
                restore_quarantine=self._restore_quarantine,
                enforced=self._options.ledger,
                on_denied=denied,
            ),
            self._quotas,
            WebhookReachabilityRule(self._options.webhook_services),
        ]

    def _build_dispatcher(self, registry: ObjectRegistry, reviews: ReviewEndpoints) -> RequestDispatcher:
        choices, cache = self._options, self.cache
        world = WriteEnvironment(choices.clock, generate_uids().__next__, random.randrange, choices.gates)
        writing = ObjectWriter(registry, world)
        removing = ObjectDeleter(writing)
        reading = StoredObjectReader(self._store, cache, choices.limits.max_page)
        showing = ResponseWriter(cache, choices.clock.now)
        return RequestDispatcher(
            reading,
            writing,
            ObjectPatcher(writing),
            removing,
            PodSubresources(writing, removing),
            WatchServer(cache, reading, showing, random.randrange),
            showing,
            reviews.answer,
            PodLogs(cache, choices.keys, choices.clock).answer,
        )

    def _build_endpoints(
        self, served: Sequence[Kind], accounts: ServiceAccountTokens
    ) -> NonResourceEndpoints:
        discovery, openapi = DiscoveryEndpoints(served, self._options.address), OpenApiDocuments(served)
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
                **LedgerEndpoints(self._store, self.cache).build_endpoints(),
                **BackupEndpoint(self._store, self._options.keys).build_endpoints(),
                **self._restore_quarantine.build_endpoints(self._store),
            },
        )

    async def _serve_metrics(self, request: ApiRequest) -> ApiResponse:
        return ApiResponse(200, self.metrics.render(), CONTENT_TYPE_LATEST)

    def _record_comparison(self, comparison: CacheComparison) -> None:
        self.metrics.count(names.CACHE_COMPARISONS, "equal" if comparison.equal else "different")
        if not comparison.equal:
            self._options.log.error("the cache differs from the store", difference=comparison.differences[0])

    def end_watches(self) -> None:
        """Let every watch end in good order; clients come back and find another server, or this one again."""
        self.cache.hub.close(StoreClosedError("the server is stopping"))


def _build_document_endpoint(build_document: Callable[[], Mapping[str, Any]]) -> Endpoint:
    """A page that tells a document."""

    async def page(request: ApiRequest) -> ApiResponse:
        return build_json_response(build_document())

    return page
