"""The webhooks in force: kept in step with their configurations, which the cache tells of.

Theory of operation: whoever carries out a request has waited for the cache to come up to every write that was
acknowledged before, so what is in force here is what was configured then, by this server or another one on
the same store. Which webhooks name a resource is found once and remembered until a configuration changes;
while nobody has configured any, `hooks` is empty, and that is all a request looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from dray.api.admission.matching import Target, called_in
from dray.api.admission.webhook_configuration import (
    IF_NEEDED,
    IGNORE,
    USUAL_SECONDS,
    MutatingWebhook,
    Webhook,
)
from dray.api.kinds import known_kind
from dray.errors import DecodeError
from dray.server.objects.stored_object import Held
from dray.server.watch.cache import Cache

_GROUP: Final = "admissionregistration.k8s.io"
MUTATING: Final = known_kind(_GROUP, "MutatingWebhookConfiguration")
VALIDATING: Final = known_kind(_GROUP, "ValidatingWebhookConfiguration")


class Hook(msgspec.Struct, frozen=True, eq=False):
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
    def sort(self) -> str:
        """What metrics call it."""
        return "mutating" if self.mutating else "validating"

    @property
    def is_curious(self) -> bool:
        """Whether it wants to be asked again when others changed something."""
        return isinstance(self.webhook, MutatingWebhook) and self.webhook.reinvocation_policy == IF_NEEDED

    @property
    def may_fail(self) -> bool:
        return self.webhook.failure_policy == IGNORE

    @property
    def seconds(self) -> float:
        return float(self.webhook.timeout_seconds or USUAL_SECONDS)


Named = tuple[Hook, str]
"""A webhook, and the version in which it is asked."""


class Hooks:
    """Every webhook in force."""

    def __init__(self, cache: Cache, unreadable: Callable[[str, str], None]) -> None:
        """`unreadable` is told the name of a configuration that cannot be read, and why."""
        self._cache = cache
        self._unreadable = unreadable
        self._named: dict[Target, tuple[Named, ...]] = {}
        self.hooks: tuple[Hook, ...] = ()
        """In the order in which they are asked: by the name of the configuration, then as listed."""
        for kind in (MUTATING, VALIDATING):
            cache.listen(kind, self._changed)

    def _changed(self, _old: Held | None, _new: Held | None) -> None:
        self.hooks = tuple(
            Hook(held.name, webhook)
            for kind in (MUTATING, VALIDATING)
            for held in sorted(self._cache.all(kind), key=lambda held: held.name)
            for webhook in self._webhooks(held)
        )
        self._named.clear()

    def naming(self, target: Target) -> tuple[Named, ...]:
        """The webhooks whose rules name a target."""
        found = self._named.get(target)
        if found is None:
            asked = ((hook, called_in(hook.webhook, target)) for hook in self.hooks)
            found = self._named[target] = tuple((hook, version) for hook, version in asked if version)
        return found

    def _webhooks(self, held: Held) -> Iterable[Webhook]:
        """What a configuration says; what stands in a store need not have come past our rules."""
        try:
            webhooks: tuple[Webhook, ...] = held.view.webhooks
        except DecodeError as broken:
            self._unreadable(held.name, str(broken))
            return ()
        return webhooks
