"""The index of active webhooks, kept up to date from their configurations in the cache.

Theory of operation: a request waits until the cache has every write that was acknowledged before, so the
index has what was configured then, by this server or another one on the same store. Which webhooks match a
resource is cached until a configuration changes; while none is configured, `webhooks` is empty, and a request
looks at nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from dray.api.admission.matching import AdmissionTarget, find_called_version
from dray.api.admission.webhook_configuration import (
    DEFAULT_TIMEOUT_SECONDS,
    IF_NEEDED,
    IGNORE,
    MutatingWebhook,
    Webhook,
)
from dray.api.kinds import get_kind
from dray.errors import DecodeError
from dray.server.objects.stored_object import StoredObject
from dray.server.watch.cache import WatchCache

_GROUP: Final = "admissionregistration.k8s.io"
MUTATING: Final = get_kind(_GROUP, "MutatingWebhookConfiguration")
VALIDATING: Final = get_kind(_GROUP, "ValidatingWebhookConfiguration")


class ActiveWebhook(msgspec.Struct, frozen=True, eq=False):
    """One webhook of a configuration."""

    configuration: str
    webhook: Webhook

    @property
    def name(self) -> str:
        return self.webhook.name

    @property
    def mutating(self) -> bool:
        return isinstance(self.webhook, MutatingWebhook)

    @property
    def admission_type(self) -> str:
        """The type of admission, as metrics name it."""
        return "mutating" if self.mutating else "validating"

    @property
    def is_reinvoked(self) -> bool:
        """Whether it is called again when another webhook changed the object."""
        return isinstance(self.webhook, MutatingWebhook) and self.webhook.reinvocation_policy == IF_NEEDED

    @property
    def ignores_failure(self) -> bool:
        return self.webhook.failure_policy == IGNORE

    @property
    def timeout_seconds(self) -> float:
        return float(self.webhook.timeout_seconds or DEFAULT_TIMEOUT_SECONDS)


MatchedWebhook = tuple[ActiveWebhook, str]
"""A webhook, and the version of the object it is called with."""


class WebhookIndex:
    """Every active webhook."""

    def __init__(self, cache: WatchCache, on_unreadable: Callable[[str, str], None]) -> None:
        """`on_unreadable` gets the name of a configuration that cannot be parsed, and why."""
        self._cache = cache
        self._on_unreadable = on_unreadable
        self._matches: dict[AdmissionTarget, tuple[MatchedWebhook, ...]] = {}
        self.webhooks: tuple[ActiveWebhook, ...] = ()
        """In the order of their calls: by the name of the configuration, then as listed."""
        for kind in (MUTATING, VALIDATING):
            cache.add_listener(kind, self._on_change)

    def _on_change(self, _old: StoredObject | None, _new: StoredObject | None) -> None:
        self.webhooks = tuple(
            ActiveWebhook(stored.name, webhook)
            for kind in (MUTATING, VALIDATING)
            for stored in sorted(self._cache.list_objects(kind), key=lambda stored: stored.name)
            for webhook in self._read_webhooks(stored)
        )
        self._matches.clear()

    def find_matching(self, target: AdmissionTarget) -> tuple[MatchedWebhook, ...]:
        """Return the webhooks whose rules match a target."""
        found = self._matches.get(target)
        if found is None:
            versions = ((hook, find_called_version(hook.webhook, target)) for hook in self.webhooks)
            found = self._matches[target] = tuple((hook, version) for hook, version in versions if version)
        return found

    def _read_webhooks(self, stored: StoredObject) -> Iterable[Webhook]:
        """Parse a configuration; a stored one need not have passed validation."""
        try:
            webhooks: tuple[Webhook, ...] = stored.view.webhooks
        except DecodeError as broken:
            self._on_unreadable(stored.name, str(broken))
            return ()
        return webhooks
