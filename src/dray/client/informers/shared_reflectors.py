"""Shared reflectors: the informers of one process that want the same kind share its list, watch and objects.

Theory of operation: the set has a client of its own, which may read the shared kinds and nothing else, and a
transform per kind that says what is kept of an object. The first informer that subscribes to a kind starts
its reflector, and the last one that leaves ends it. A reflector applies each change to the indexers of its
subscribers in turn, in the order in which they subscribed, so each sees every change in order. An informer
that subscribes later first gets all objects as they are, as from a list, and from there the changes. The
error of one subscriber's listener ends that informer and no other; an error of the reflector ends all of
them.

Rules for this file: nothing is awaited between a change and its subscribers, or between the snapshot that a
subscriber gets and its first change. Subscribers never get more than they could read: an informer uses a
shared reflector only where its component has the permission to read the kind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from dray.client.client import Client
from dray.client.informers.indexer import IndexedObject, Indexer
from dray.client.informers.reflector import InformerOptions, ReflectedObjects, Reflector
from dray.client.object_refs import SELECT_ALL, ObjectKey
from dray.client.rest_client import ClientOptions
from dray.client.transport import Transport
from dray.client.transports.leader_guard import LeaderGuardTransport
from dray.tasks import cancel_and_wait

ObjectTransform = Callable[[Any], Any]
"""Turns an object into what is kept of it."""


class SharedReflectors:
    """The reflectors of one process, by the type of their objects."""

    def __init__(self, client: Client, transforms: Mapping[Any, ObjectTransform]) -> None:
        """`transforms` has the shared kinds, as the types that informers name."""
        self._client = client
        self._transforms = transforms
        self._running: dict[Any, _SharedReflector] = {}

    def share(self, reflected: ReflectedObjects) -> bool:
        """Whether these objects are shared: all objects of a shared kind."""
        everything = not reflected.namespace and reflected.selector == SELECT_ALL
        return everything and reflected.kind in self._transforms

    def get_transform(self, kind: Any) -> ObjectTransform | None:
        """The transform of a shared kind; None for other kinds."""
        return self._transforms.get(kind)

    async def follow(self, subscription: Subscription) -> None:
        """Feed a subscriber until cancelled, or until its listener or the reflector fails."""
        kind = subscription.kind
        shared = self._running.get(kind)
        if shared is None or shared.has_failed:
            shared = self._running[kind] = _SharedReflector(self._client, kind, self._transforms[kind])
        try:
            await shared.follow(subscription)
        finally:
            if shared.is_unused and self._running.get(kind) is shared:
                del self._running[kind]
                await shared.stop()


class Subscription:
    """The part of one informer in a shared reflector."""

    def __init__(
        self,
        reflectors: SharedReflectors,
        kind: Any,
        indexer: Indexer[Any],
        on_failure: Callable[[Exception], None] | None,
    ) -> None:
        self.kind = kind
        self.indexer = indexer
        self.on_failure = on_failure
        self.reflector: Reflector | None = None
        """The reflector, once the indexer has its objects."""
        self._reflectors = reflectors

    async def follow(self) -> None:
        """Follow the reflector until cancelled; raises what a listener raised."""
        await self._reflectors.follow(self)


class _SharedReflector:
    """The reflector of one kind, its objects, and its subscribers."""

    def __init__(self, client: Client, kind: Any, transform: ObjectTransform) -> None:
        self.objects: dict[ObjectKey, IndexedObject] = {}
        options = InformerOptions(transform=transform, on_failure=self._report_failure)
        self._reflector = Reflector(client, ReflectedObjects(kind), self, options)
        self._endings: dict[Subscription, asyncio.Future[None]] = {}
        self._is_synced = False
        self.has_failed = False
        """Whether the reflector has ended with an error; the next subscriber needs a new one."""
        self._task: asyncio.Task[None] | None = None

    @property
    def is_unused(self) -> bool:
        return not self._endings

    async def follow(self, subscription: Subscription) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        if self._is_synced:
            subscription.indexer.replace(self.objects)
            subscription.reflector = self._reflector
        ending = self._endings[subscription] = asyncio.get_running_loop().create_future()
        try:
            await ending
        finally:
            self._endings.pop(subscription, None)
            if not ending.cancel() and not ending.cancelled():
                ending.exception()  # if this task was cancelled, too, nobody else retrieves it

    async def stop(self) -> None:
        if self._task is not None:
            await cancel_and_wait(self._task)

    async def _run(self) -> None:
        try:
            await self._reflector.run()
        except Exception as error:  # an error of the program: every informer reports it
            self.has_failed = True
            for subscription in tuple(self._endings):
                self._fail(subscription, error)

    # --- the sink of the reflector ---

    def put(self, key: ObjectKey, new: IndexedObject) -> None:
        self.objects[key] = new
        for subscription in tuple(self._endings):
            try:
                subscription.indexer.put(key, new)
            except Exception as error:  # the others go on
                self._fail(subscription, error)

    def remove(self, key: ObjectKey) -> None:
        self.objects.pop(key, None)
        for subscription in tuple(self._endings):
            try:
                subscription.indexer.remove(key)
            except Exception as error:  # the others go on
                self._fail(subscription, error)

    def replace(self, now: dict[ObjectKey, IndexedObject]) -> None:
        # Subscribers keep the objects that have not changed, so these are the ones to share.
        for key, known in self.objects.items():
            seen = now.get(key)
            if seen is not None and (seen.version, seen.uid) == (known.version, known.uid):
                now[key] = known
        self.objects = now
        self._is_synced = True
        for subscription in tuple(self._endings):
            try:
                subscription.indexer.replace(now)
                subscription.reflector = self._reflector
            except Exception as error:  # the others go on
                self._fail(subscription, error)

    def _fail(self, subscription: Subscription, error: Exception) -> None:
        """End a subscription: its informer raises the error."""
        ending = self._endings.pop(subscription)
        if not ending.done():
            ending.set_exception(error)

    def _report_failure(self, failure: Exception) -> None:
        for subscription in tuple(self._endings):
            if subscription.on_failure is not None:
                subscription.on_failure(failure)


class SharingClient(Client):
    """A client whose informers use the shared reflectors of the process, for kinds that are shared."""

    def __init__(
        self, transport: Transport, reflectors: SharedReflectors, options: ClientOptions | None = None
    ) -> None:
        super().__init__(transport, options)
        self.reflectors = reflectors

    def guard_writes(self, is_leader: Callable[[], bool]) -> SharingClient:
        transport = LeaderGuardTransport(self._rest_client.transport, is_leader)
        return SharingClient(transport, self.reflectors, self.options)
