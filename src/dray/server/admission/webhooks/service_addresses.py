"""Addresses of the services of webhooks, from the command line.

In Kubernetes a service has an address inside the cluster. dray has no cluster network, so the operator of the
server gives the address of a webhook's service; its certificate is still that of the service.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from dray.api.admission.webhook_configuration import ServiceReference
from dray.errors import InputError
from dray.server.admission.change import ADMITTED, CREATE, UPDATE, AdmissionEffects, ObjectChange, RuleScope
from dray.server.admission.webhooks.active_webhooks import MUTATING, VALIDATING

WEBHOOK_SERVICE_FLAG: Final = "--webhook-service"

ServiceAddresses = Mapping[tuple[str, str], str]
"""`HOST:PORT` by namespace and name of a service."""

_ADDRESS_PATTERN = re.compile(
    r"(?P<namespace>[^/=]+)/(?P<name>[^/=]+)=(?P<host>\[[0-9a-fA-F:.]+\]|[^\[\]:/@=]+):(?P<port>\d{1,5})"
)
_MAX_PORT: Final = 65_535


def parse_addresses(texts: Iterable[str]) -> dict[tuple[str, str], str]:
    """Parse addresses from the command line."""
    found: dict[tuple[str, str], str] = {}
    for text in texts:
        parts = _ADDRESS_PATTERN.fullmatch(text)
        if parts is None or not 0 < int(parts["port"]) <= _MAX_PORT:
            raise InputError(
                f"`{WEBHOOK_SERVICE_FLAG} {text}`: expected NAMESPACE/NAME=HOST:PORT, "
                "for example `gpu-example-com/gpu-example-com-webhook=127.0.0.1:8443`"
            )
        found[parts["namespace"], parts["name"]] = f"{parts['host']}:{parts['port']}"
    return found


def explain_unknown_service(service: ServiceReference) -> str:
    """Explain what to do about a service without a known address."""
    name = f"{service.namespace}/{service.name}"
    return (
        f"this server does not know where service {name} is: "
        f"start it with `{WEBHOOK_SERVICE_FLAG} {name}=HOST:PORT`, or give a `url` in clientConfig"
    )


class WebhookReachabilityRule:
    """Warns when a webhook is configured with a service that this server cannot reach."""

    scopes: Final = (RuleScope((MUTATING, VALIDATING), (CREATE, UPDATE)),)

    def __init__(self, addresses: ServiceAddresses) -> None:
        self._addresses = addresses

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        if change.view is None:
            return ADMITTED
        return AdmissionEffects(warnings=tuple(self._find_warnings(change)))

    def _find_warnings(self, change: ObjectChange) -> Iterator[str]:
        for position, webhook in enumerate(change.view.webhooks):
            service = webhook.client_config.service
            if service is not None and (service.namespace, service.name) not in self._addresses:
                yield f"webhooks[{position}].clientConfig.service: {explain_unknown_service(service)}"
