"""Renewal of the certificates of a running API server: the one it serves, and the administrator's kubeconfig.

Theory of operation: every minute the task looks whether something is due; that is a matter of wall time, so a
machine that slept finds out within a minute after it wakes. New connections get the new certificate, open
ones stay. Until then, a handshake that would show an expired certificate is refused. A renewal that fails is
logged once and tried again a minute later; there is a third of the lifetime for that. The certificate
authority is never replaced here, because all clients trust it: long before its end, a warning is logged every
day.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import yaml
from cryptography import x509

from dray.client.timing import TimeSource
from dray.errors import InputError
from dray.manifests.writer import to_yaml_block
from dray.server.auth.authn.certificates import CertificateAuthority
from dray.server.auth.authn.kubeconfig import build_kubeconfig
from dray.server.auth.authn.secret_files import read_file, write_private_file
from dray.server.http.requests import MASTERS
from dray.telemetry.logs import ChangeLogger, LogLevel, StructuredLogger
from dray.x509_certificates import parse_certificates

ADMIN_USER: Final = "dray-admin"
ADMIN_LIFETIME: Final = timedelta(days=365)
AUTHORITY_WARNING: Final = timedelta(days=180)
"""How long before its end the authority is warned about: every client needs a new one before."""
_CHECK_SECONDS: Final = 60.0


class ServerCertificateRenewal:
    """Keeps the certificates of a server valid while it runs."""

    def __init__(
        self,
        authority: CertificateAuthority,
        kubeconfig: tuple[Path, str],
        time_source: TimeSource,
        log: StructuredLogger,
    ) -> None:
        """`kubeconfig` is the administrator's file, and the URL of the server in it."""
        self._authority = authority
        self._kubeconfig, self._url = kubeconfig
        self._time_source, self._log = time_source, log
        self._change_log = ChangeLogger(log)
        self._tls = authority.build_server_context()
        self._tls.sni_callback = self._refuse_expired
        self._serving_end = self._read_serving_end()
        self._warned_on = ""

    @property
    def tls(self) -> ssl.SSLContext:
        """The TLS context of the server, which always has the current certificate."""
        return self._tls

    def write_kubeconfig(self) -> None:
        """Write the administrator's kubeconfig, with a new certificate."""
        days = ADMIN_LIFETIME // timedelta(days=1)
        admin = self._authority.issue_client_certificate(ADMIN_USER, (MASTERS,), days)
        document = build_kubeconfig(self._url, self._authority.ca_pem, admin)
        write_private_file(self._kubeconfig, to_yaml_block(document).encode())

    async def run(self) -> None:
        """Renew what is due, until cancelled."""
        while True:
            await self._time_source.sleep(_CHECK_SECONDS)
            await asyncio.to_thread(self.renew)

    def renew(self) -> None:
        """Renew what is due now; a failure is logged."""
        self._try("serving", self._renew_serving)
        self._try("administrator", self._renew_kubeconfig)
        self._warn_about_authority()

    def read_expiry_times(self) -> dict[str, datetime]:
        """When each certificate expires."""
        found = {
            "ca": self._authority.ca_certificate,
            "serving": self._authority.read_serving_certificate(),
            "admin": read_kubeconfig_certificate(self._kubeconfig),
        }
        return {name: each.not_valid_after_utc for name, each in found.items() if each is not None}

    def _try(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except (InputError, OSError) as refused:
            message = "a certificate cannot be renewed"
            self._change_log.report(what, LogLevel.ERROR, message, certificate=what, why=str(refused))
        else:
            self._change_log.clear(what)

    def _renew_serving(self) -> None:
        if self._authority.refresh(self._tls):
            self._serving_end = self._read_serving_end()
            self._log.info("a certificate was renewed", certificate="serving", until=self._serving_end)

    def _renew_kubeconfig(self) -> None:
        known = read_kubeconfig_certificate(self._kubeconfig)
        if known is not None and self._authority.is_renewal_useful(known, ADMIN_LIFETIME):
            self.write_kubeconfig()
            self._log.info("a certificate was renewed", certificate="admin", file=self._kubeconfig)

    def _warn_about_authority(self) -> None:
        now, end = self._time_source.clock.now(), self._authority.ca_certificate.not_valid_after_utc
        if end - now < AUTHORITY_WARNING and self._warned_on != f"{now:%F}":
            self._warned_on = f"{now:%F}"
            self._log.warning(
                "the certificate authority expires; replace it before, and every kubeconfig with it",
                file=self._authority.ca_file,
                at=end,
            )

    def _read_serving_end(self) -> datetime:
        found = self._authority.read_serving_certificate()
        return self._time_source.clock.now() if found is None else found.not_valid_after_utc

    def _refuse_expired(self, _connection: Any, _name: str | None, _context: ssl.SSLContext) -> int | None:
        """Refuse a handshake with an expired certificate, and renew it for the next one."""
        if self._time_source.clock.now() < self._serving_end:
            return None
        self.renew()
        return ssl.AlertDescription.ALERT_DESCRIPTION_INTERNAL_ERROR


def read_kubeconfig_certificate(path: Path) -> x509.Certificate | None:
    """The client certificate inside of a kubeconfig as dray writes it; None when there is none."""
    try:
        document = yaml.safe_load(read_file(path) or b"")
        user: Mapping[str, Any] = document["users"][0]["user"]
        found = parse_certificates(base64.b64decode(user["client-certificate-data"]))
    except (yaml.YAMLError, KeyError, IndexError, TypeError, ValueError):
        return None
    return found[0] if found else None
