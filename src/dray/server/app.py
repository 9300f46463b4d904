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
from dray.api.strategies.gated_fields import Gatekeeper
from dray.clock import Clock, SystemClock
from dray.server.admission.change import Rule
from dray.server.admission.namespace_lifecycle import ClaimNames, Namespaces
from dray.server.admission.object_count_limit import Crowding
from dray.server.admission.resource_quota import Quotas
from dray.server.admission.taint_rule_warnings import TaintReach
from dray.server.admission.webhooks.service_addresses import Addresses, Reachable
from dray.server.admission.webhooks.webhook_admission import Admission
from dray.server.admission.webhooks.webhook_client import Caller
from dray.server.audit.log import AuditLog
from dray.server.auth.authn.authentication import Authenticator
from dray.server.auth.authn.service_account_tokens import AccountTokens
from dray.server.auth.authn.token_file import StaticTokens
from dray.server.auth.authn.token_requests import TokenRequests
from dray.server.auth.authz.authorizer import Access
from dray.server.auth.authz.bootstrap_roles import bootstrap_documents
from dray.server.auth.authz.impersonation import impersonated
from dray.server.auth.authz.policy_rules import asked_of
from dray.server.auth.authz.rbac import refusal
from dray.server.auth.authz.reviews import Reviews
from dray.server.auth.restriction.write_rules import confinement
from dray.server.background.bootstrap import begin_with, first_documents, forget_the_past
from dray.server.background.event_expiry import Expiry
from dray.server.background.garbage_collector import Collector
from dray.server.discovery.documents import Discovery
from dray.server.http.application import App, Peer, Permit
from dray.server.http.endpoints import Page, Paths
from dray.server.http.flow_control import Gate
from dray.server.http.limits import Limits
from dray.server.http.requests import Answer, Call, Request, User, json_answer
from dray.server.http.responses import Showing
from dray.server.http.routing import Routes
from dray.server.ledger.admission import Guard
from dray.server.ledger.backup_endpoint import Backups
from dray.server.ledger.endpoints import LedgerPages
from dray.server.ledger.reconciliation import audit as audit_ledger
from dray.server.ledger.restore_quarantine import Aftermath
from dray.server.objects.identifiers import uids
from dray.server.observability import metrics as names
from dray.server.observability.metrics import Metrics
from dray.server.observability.request_recorder import Observing, watched
from dray.server.observability.webhook_recorder import Telling
from dray.server.openapi import OpenApi
from dray.server.registry.deleter import Removing
from dray.server.registry.dispatcher import Service
from dray.server.registry.object_registry import Registry
from dray.server.registry.patcher import Patching
from dray.server.registry.pod_logs import PodLogs
from dray.server.registry.pod_subresources import Errands
from dray.server.registry.reader import Reading
from dray.server.registry.review_endpoints import Reviewing
from dray.server.registry.watch_server import Watching
from dray.server.registry.writer import Surroundings, Writing
from dray.server.watch.cache import Cache
from dray.server.watch.cache_verifier import Comparison, Watchdog
from dray.store import Store
from dray.store.errors import Closed
from dray.telemetry.logs import Log


@dataclass(frozen=True)
class Choices:
    """What an administrator decides."""

    gates: Gatekeeper
    keys: Path
    """The directory of keys and certificates."""
    audit: Path
    """The file of the audit log."""
    log: Log
    address: str = ""
    ca_pem: str = ""
    tokens: Path | None = None
    anonymous: bool = False
    ledger: bool = True
    """Only tests switch the ledger off, to show what it is good for."""
    limits: Limits = field(default_factory=Limits)
    clock: Clock = field(default_factory=SystemClock)
    webhook_services: Addresses = field(default_factory=dict)
    """Where services are behind which admission webhooks answer."""


class Door:
    """Identity and rights of a request, in one place for the application to ask."""

    def __init__(self, authenticator: Authenticator, access: Access) -> None:
        self._authenticator = authenticator
        self._access = access

    def identify(self, headers: Mapping[str, str], peer: Peer | None, path: str) -> User:
        return self._authenticator.identify(headers, peer, path)

    def permit(self, call: Call, user: User, headers: Mapping[str, str]) -> Permit:
        acting, asked = impersonated(user, headers, self._access), asked_of(call)
        decision = self._access.decide(acting, asked)
        if not decision.allowed:
            raise refusal(asked, decision)
        return Permit(acting, decision.reason)


class ApiServer:
    """An API server over a store: `running` gives the application and everything behind it."""

    def __init__(self, store: Store, choices: Choices) -> None:
        self._store = store
        self._choices = choices
        self.cache = Cache(store)
        self.metrics = Metrics()
        self._audit = AuditLog(choices.audit, choices.clock)
        self._webhooks = Caller(choices.webhook_services)
        self._watchdog = Watchdog(self.cache, store, self._compared)
        self._quotas = Quotas(self.cache, on_denied=partial(self.metrics.count, names.QUOTA_DENIED))
        self._aftermath = Aftermath(self.cache, choices.clock, choices.limits.restored_seconds)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[App]:
        """The application, while everything behind it runs."""
        await self.cache.fill()
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self.cache.follow())]
            self._audit.open()
            try:
                app, chores = self._assembled()
                running += map(tasks.create_task, chores)
                documents = [*first_documents(self._choices.ca_pem), *bootstrap_documents()]
                await begin_with(app.resources, documents)
                running.append(tasks.create_task(self._quotas.keep(self._store)))
                yield app
            finally:
                self.end_watches()
                for task in running:
                    task.cancel()
                await self._webhooks.close()
                await self._audit.close()

    def _assembled(self) -> tuple[App, list[Coroutine[Any, Any, None]]]:
        """The application, and what is to be done beside it for as long as it runs."""
        choices, cache = self._choices, self.cache
        access = Access(cache)
        static = StaticTokens.read(choices.tokens) if choices.tokens else None
        accounts = AccountTokens.open(choices.keys, cache, clock=choices.clock)
        authenticator = Authenticator(static, accounts, anonymous=choices.anonymous, clock=choices.clock)
        reviews = Reviews(access, authenticator, accounts)
        reviewing = Reviewing(cache, reviews, TokenRequests(cache, accounts))
        registry = Registry(
            self._store,
            cache,
            self._rules(access),
            self._noted,
            choices.limits.max_object_bytes,
            self._audit.inside,
        )
        registry.admission = self._admission()
        service = self._service(registry, reviewing)
        served = [kind for kind in KINDS if choices.gates.serves(kind)]
        app = App(
            Routes(served),
            Door(authenticator, access),
            self._gate(),
            Observing(self.metrics, choices.log, self._audit),
            service.answer,
            self._paths(served, accounts).answer,
            choices.clock,
            choices.limits.max_body_bytes,
        )
        chores = [
            Collector(cache, registry, service.removing, self._uncollected).run(),
            Expiry(cache, registry, choices.clock).run(),
            forget_the_past(self._store, choices.clock.monotonic),
            self._watchdog.run(),
            self._look_into_the_ledger(),
            self._aftermath.settle(self._store, log=choices.log),
        ]
        return app, chores

    async def _look_into_the_ledger(self) -> None:
        """Say at the start whether ledger and claims agree; another hand may have been in the store."""
        report = await audit_ledger(self.cache)
        if not report.agrees:
            self._choices.log.warning(
                "ledger and claims do not agree; `dray doctor ledger` tells how and can repair it",
                differences=len(report.findings),
                first=report.findings[0],
            )

    def _uncollected(self, why: str) -> None:
        self._choices.log.warning("garbage cannot be collected", why=why)

    def _gate(self) -> Gate:
        gate = Gate(self._choices.limits, self._choices.clock, self.refused)
        watched(self.metrics, self.cache, gate, self._audit)
        return gate

    def refused(self, limit: str) -> None:
        """Count a request or connection beyond a limit."""
        self.metrics.count(names.REFUSED, limit)

    def _admission(self) -> Admission:
        choices = self._choices
        told = Telling(self.metrics, choices.log, self._audit).told
        return Admission(self.cache, self._webhooks, told, choices.clock, uids().__next__)

    def _noted(self, committed: bool, seconds: float) -> None:
        self.metrics.count(names.COMMITS if committed else names.CONFLICTS)
        if committed:
            self.metrics.observe(names.COMMIT_SECONDS, seconds)

    def _rules(self, access: Access) -> list[Rule]:
        cache, denied = self.cache, partial(self.metrics.count, names.LEDGER_CONFLICTS)
        return [
            Namespaces(cache),
            ClaimNames(cache),
            TaintReach(cache),
            Crowding(cache, self._choices.limits.max_objects_per_namespace, self.refused),
            *confinement(cache, access),
            Guard(cache, aftermath=self._aftermath, enforced=self._choices.ledger, on_denied=denied),
            self._quotas,
            Reachable(self._choices.webhook_services),
        ]

    def _service(self, registry: Registry, reviewing: Reviewing) -> Service:
        choices, cache = self._choices, self.cache
        world = Surroundings(choices.clock, uids().__next__, random.randrange, choices.gates)
        writing = Writing(registry, world)
        removing = Removing(writing)
        reading = Reading(self._store, cache, choices.limits.max_page)
        showing = Showing(cache, choices.clock.now)
        return Service(
            reading,
            writing,
            Patching(writing),
            removing,
            Errands(writing, removing),
            Watching(cache, reading, showing, random.randrange),
            showing,
            reviewing.answer,
            PodLogs(cache, choices.keys, choices.clock).answer,
        )

    def _paths(self, served: Sequence[Kind], accounts: AccountTokens) -> Paths:
        discovery, openapi = Discovery(served, self._choices.address), OpenApi(served)
        return Paths(
            {
                "ping": lambda: None,
                "store": lambda: self.cache.trouble,
                "cache": self._watchdog.check,
                "audit": lambda: self._audit.trouble or None,
            },
            (
                lambda request: discovery.answer(request.call.path, request.accept, request.headers),
                lambda request: openapi.answer(
                    request.call.path, request.accept, request.headers, request.call.query
                ),
            ),
            {
                ("get", "/metrics"): self._measured,
                ("get", "/openid/v1/jwks"): _told(accounts.jwks),
                ("get", "/.well-known/openid-configuration"): _told(accounts.openid_configuration),
                **LedgerPages(self._store, self.cache).pages(),
                **Backups(self._store, self._choices.keys).pages(),
                **self._aftermath.pages(self._store),
            },
        )

    async def _measured(self, request: Request) -> Answer:
        return Answer(200, self.metrics.render(), CONTENT_TYPE_LATEST)

    def _compared(self, found: Comparison) -> None:
        self.metrics.count(names.DIGESTS, "equal" if found.equal else "different")
        if not found.equal:
            self._choices.log.error("the cache differs from the store", difference=found.differences[0])

    def end_watches(self) -> None:
        """Let every watch end in good order; clients come back and find another server, or this one again."""
        self.cache.hub.close(Closed("the server is stopping"))


def _told(make: Callable[[], Mapping[str, Any]]) -> Page:
    """A page that tells a document."""

    async def page(request: Request) -> Answer:
        return json_answer(make())

    return page
