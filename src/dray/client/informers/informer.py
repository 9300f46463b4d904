"""The informer: a local copy of the objects of one kind, kept up to date by list and watch.

Theory of operation: an informer has a reflector of its own (`reflector`), or shares one with the other
informers of its process (`shared_reflectors`). When everything is listed again, listeners get the differences
as if they had been watched: only the steps in between are lost.

Rules for this file: an exception of a listener ends `run`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar, overload

import msgspec
from msgspec.structs import replace

from dray.api.kinds import Kind
from dray.client.client import Client
from dray.client.informers.indexer import Indexer, ObjectListener
from dray.client.informers.reflector import InformerOptions, InformerStats, ReflectedObjects, Reflector
from dray.client.informers.shared_reflectors import SharingClient, Subscription
from dray.client.object_refs import ObjectKey, ObjectSelector, resolve_kind

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

__all__ = ["Informer", "InformerOptions", "InformerStats", "strip_managed_fields"]

_DEFAULT_OPTIONS = InformerOptions()


def strip_managed_fields(obj: Any) -> Any:
    """Return a struct without its managed fields (an `InformerOptions.transform`)."""
    if not obj.metadata.managed_fields:
        return obj
    return replace(obj, metadata=replace(obj.metadata, managed_fields=()))


class Informer(Generic[T]):
    """All matching objects of a kind. `run` keeps them up to date; its caller owns the task."""

    @overload
    def __init__(
        self: Informer[S],
        client: Client,
        kind: type[S],
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        options: InformerOptions = _DEFAULT_OPTIONS,
    ) -> None: ...
    @overload
    def __init__(
        self: Informer[Any],
        client: Client,
        kind: Kind,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        options: InformerOptions = _DEFAULT_OPTIONS,
    ) -> None: ...
    def __init__(
        self,
        client: Client,
        kind: Any,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        options: InformerOptions = _DEFAULT_OPTIONS,
    ) -> None:
        self.kind = resolve_kind(kind)
        self._indexer: Indexer[T] = Indexer()
        self._failure: BaseException | None = None
        reflected = ReflectedObjects(kind, namespace, ObjectSelector(label_selector, field_selector))
        self._reflector: Reflector | None = None
        self._subscription: Subscription | None = None
        if options.may_share and isinstance(client, SharingClient) and client.reflectors.share(reflected):
            self._subscription = Subscription(client.reflectors, kind, self._indexer, options.on_failure)
        else:
            self._reflector = Reflector(client, reflected, self._indexer, options)

    @property
    def is_replacing(self) -> bool:
        """Whether listeners are being called with what a list shows: steps in between are missing."""
        return self._indexer.is_replacing

    @property
    def stats(self) -> InformerStats:
        """The counters of its reflector."""
        reflector = self._get_reflector()
        return InformerStats() if reflector is None else reflector.stats

    def _get_reflector(self) -> Reflector | None:
        return self._reflector if self._subscription is None else self._subscription.reflector

    def get(self, name: str, namespace: str = "") -> T | None:
        """Return one object, if it exists."""
        seen = self._indexer.objects.get(ObjectKey(namespace, name))
        return None if seen is None else seen.object

    def list_all(self) -> list[T]:
        """Return all objects."""
        return [seen.object for seen in self._indexer.objects.values()]

    def __len__(self) -> int:
        return len(self._indexer.objects)

    def add_index(self, name: str, index_func: Callable[[T], Iterable[Hashable]]) -> None:
        """Index objects by the values of `index_func`, which must be a pure function of the object."""
        self._indexer.add_index(name, index_func)

    def get_by_index(self, name: str, value: Hashable) -> list[T]:
        """Return the objects with this index value."""
        return self._indexer.get_by_index(name, value)

    def listen(
        self,
        added: Callable[[T], None] | None = None,
        updated: Callable[[T, T], None] | None = None,
        deleted: Callable[[T], None] | None = None,
    ) -> Callable[[], None]:
        """Call these for every existing object and for every change, in order; the result removes them."""
        return self._indexer.listen(ObjectListener(added, updated, deleted))

    async def wait_for_sync(self) -> None:
        """Wait until everything was seen once; raise when `run` ended before."""
        await self._indexer.synced.wait()
        if self._failure is not None:
            raise RuntimeError(f"the informer of {self.kind.plural} has ended") from self._failure

    @property
    def resource_version(self) -> str:
        """The version up to which everything is here; empty before the first list."""
        reflector = self._get_reflector()
        return "" if reflector is None else reflector.resource_version

    async def run(self) -> None:
        """Keep the objects up to date; ends only by cancellation or by an error in a listener."""
        try:
            if self._reflector is not None:
                await self._reflector.run()
            if self._subscription is not None:
                await self._subscription.follow()
        except BaseException as ended:
            self._failure = ended
            self._indexer.synced.set()
            raise
