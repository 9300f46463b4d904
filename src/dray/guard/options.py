"""Options of the guard."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dray.client.leases import LeaseTiming
from dray.telemetry.logs import StructuredLogger, build_silent_logger

COMPONENT_NAME: Final = "dray-guard"
"""The source that events name."""
LEASE_NAME: Final = "dray-guard"
NAMESPACE: Final = "kube-system"
SERVICE_NAME: Final = "dray-guard"
SECRET_NAME: Final = "dray-guard-tls"
CONFIGURATION_NAME: Final = "dray-guard"
"""The ValidatingWebhookConfiguration."""
WEBHOOK_NAME: Final = "guard.dray.dev"

WEBHOOK_TIMEOUT_SECONDS: Final = 5.0
"""How long API servers wait for an answer, as the webhook configuration says."""
REQUEST_TIMEOUT_SECONDS: Final = 65.0
"""How long a request to an API server may take, with its default of 60 seconds, and a margin."""
MAX_FENCED_CLAIMS: Final = 1_000


def build_lease_timing(lease_duration: float) -> LeaseTiming:
    """The timing of the leader election.

    A leader answers until its renew deadline, and an API server accepts that answer as long as its webhook
    timeout; only then another guard may lead.
    """
    return LeaseTiming(lease_duration, lease_duration - WEBHOOK_TIMEOUT_SECONDS, 1.0)


@dataclass(frozen=True)
class GuardOptions:
    """Options of one guard."""

    identity: str = COMPONENT_NAME
    listen_address: str = "0.0.0.0:8443"
    advertised_host: str = ""
    """The host or address by which other guards reach this one; that of `listen_address` when empty."""
    service_names: tuple[str, ...] = (f"{SERVICE_NAME}.{NAMESPACE}.svc",)
    """The names in the certificate; other guards and API servers call by the first."""
    certificate_directory: Path | None = None
    """Where `tls.crt`, `tls.key` and `ca.crt` are, if somebody else issues them."""
    lease_name: str = LEASE_NAME
    lease_timing: LeaseTiming = field(default_factory=lambda: build_lease_timing(12.0))
    request_timeout: float = REQUEST_TIMEOUT_SECONDS
    """Seconds after which an admitted write that is not seen is fenced."""
    max_fenced_claims: int = MAX_FENCED_CLAIMS
    """With more claims without allocation than this, a new leader waits instead of fencing them."""
    log: StructuredLogger = field(default_factory=build_silent_logger)
