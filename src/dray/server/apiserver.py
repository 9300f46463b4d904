"""The API server put together: from a store and a few choices to an application and the tasks behind it.

Everything the parts need is made here once and handed to them; none of them looks for another.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dray.api.gated import Gatekeeper
from dray.api.kinds import KINDS
from dray.clock import Clock, SystemClock
from dray.server.asgi import App, Peer
from dray.server.auth.access import Access
from dray.server.auth.accounts import AccountTokens
from dray.server.auth.identity import Authenticator
from dray.server.auth.rules import asked_of
from dray.server.auth.tokens import StaticTokens
from dray.server.cache import Cache
from dray.server.call import Answer, Call, Request, User
from dray.server.change import Rule
from dray.server.collector import Collector
from dray.server.discovery import Discovery
from dray.server.errands import Errands
from dray.server.failures import Failure, no_such_path
from dray.server.guard import Guard
from dray.server.houserules import ClaimNames, Namespaces
from dray.server.patching import Patching
from dray.server.paths import Paths
from dray.server.reading import Reading
from dray.server.registry import Registry
from dray.server.removing import Removing
from dray.server.routes import Routes
from dray.server.service import Service
from dray.server.showing import Showing
from dray.server.upkeep import begin_with, first_documents, forget_the_past
from dray.server.watching import Watching
from dray.server.writing import Surroundings, Writing
from dray.store import Store
from dray.store.errors import Closed


@dataclass(frozen=True)
class Choices:
    """What an administrator decides."""

    gates: Gatekeeper
    keys: Path
    """The directory of keys and certificates."""
    address: str = ""
    ca_pem: str = ""
    tokens: Path | None = None
    anonymous: bool = False
    ledger: bool = True
    """Only tests switch the ledger off, to show what it is good for."""
    clock: Clock = field(default_factory=SystemClock)


class Door:
    """Identity and rights of a request, in one place for the application to ask."""

    def __init__(self, authenticator: Authenticator, access: Access) -> None:
        self._authenticator = authenticator
        self._access = access

    def identify(self, headers: Mapping[str, str], peer: Peer | None, path: str) -> User:
        return self._authenticator.identify(headers, peer, path)

    def permit(self, call: Call, user: User, headers: Mapping[str, str]) -> User:
        self._access.require(user, asked_of(call))
        return user


class ApiServer:
    """An API server over a store: `app` answers requests inside `running`."""

    def __init__(self, store: Store, choices: Choices) -> None:
        self._store = store
        self._choices = choices
        self.cache = Cache(store)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[App]:
        """The application, while everything behind it runs."""
        await self.cache.fill()
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self.cache.follow())
            service, collector = self._service()
            await begin_with(service.answer, first_documents(self._choices.ca_pem))
            others = [
                tasks.create_task(collector.run()),
                tasks.create_task(forget_the_past(self._store, self._choices.clock.monotonic)),
            ]
            try:
                yield self._app(service)
            finally:
                self.cache.hub.close(Closed("the server is stopping"))
                for task in (*others, following):
                    task.cancel()

    def _service(self) -> tuple[Service, Collector]:
        choices, cache = self._choices, self.cache
        registry = Registry(self._store, cache, self._rules())
        world = Surroundings(choices.clock, lambda: str(uuid.uuid4()), random.randrange, choices.gates)
        writing = Writing(registry, world)
        removing = Removing(writing)
        reading = Reading(self._store, cache)
        showing = Showing(cache, choices.clock.now)
        service = Service(
            reading,
            writing,
            Patching(writing),
            removing,
            Errands(writing, removing),
            Watching(cache, reading, showing, random.randrange),
            showing,
            self._review,
        )
        return service, Collector(cache, registry, removing)

    def _rules(self) -> list[Rule]:
        cache = self.cache
        return [Namespaces(cache), ClaimNames(cache), Guard(cache, enforced=self._choices.ledger)]

    def _app(self, service: Service) -> App:
        choices = self._choices
        served = [kind for kind in KINDS if choices.gates.serves(kind)]
        discovery = Discovery(served, choices.address)
        paths = Paths(
            {"ping": lambda: None},
            (lambda request: discovery.answer(request.call.path, request.accept, request.headers),),
        )
        static = StaticTokens.read(choices.tokens) if choices.tokens else None
        accounts = AccountTokens.open(choices.keys, self.cache, clock=choices.clock)
        door = Door(Authenticator(static, accounts, anonymous=choices.anonymous), Access(self.cache))
        return App(
            Routes(served), door, Unlimited(), Unobserved(), service.answer, paths.answer, choices.clock
        )

    async def _review(self, request: Request) -> Answer:
        raise no_such_path()


class Unlimited:
    @asynccontextmanager
    async def entered(self, call: Call, user: User) -> AsyncIterator[None]:
        yield


class Unobserved:
    async def arrived(self, request: Request, source: str) -> None: ...
    async def answered(
        self, request: Request, code: int, failure: Failure | None, seconds: float
    ) -> None: ...
    def broke(self, request: Request, error: Exception) -> None:
        import traceback

        traceback.print_exception(error)

    def cut(self, request: Request) -> None: ...
