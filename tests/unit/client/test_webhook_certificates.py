"""Certificates that a webhook issues itself: trusted by clients, shared by replicas, renewed in time."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dray.client.client import Client
from dray.client.rest_client import ClientOptions
from dray.client.timing import TimeSource
from dray.client.webhooks.certificates import WebhookCertificates, WebhookTls
from dray.client.webhooks.key_pairs import (
    AUTHORITY_LIFE,
    CERTIFICATE_LIFE,
    issue_key_pair,
    parse_authority,
    parse_key_pair,
)
from dray.clock import ManualClock, SystemClock
from dray.telemetry.logs import build_silent_logger
from tests.contract.api import Api, path, serving
from tests.support.in_process_transport import InProcessTransport

TLS = WebhookTls("gpu-system", "gpu-webhook", configuration="gpu-parameters")
SECRET = path("secrets", "gpu-webhook-tls", namespace="gpu-system")
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
CONFIGURATION = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "gpu-parameters"},
    "webhooks": [
        {
            "name": f"{name}.gpu.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"service": {"namespace": "gpu-system", "name": "gpu-webhook"}},
        }
        for name in ("parameters", "classes")
    ],
}


class Site:
    """A server with the configuration of a webhook, and replicas that keep its certificate."""

    def __init__(self, api: Api, folder: Path) -> None:
        self.api, self._folder = api, folder
        self.clock = ManualClock()

    def replica(self) -> WebhookCertificates:
        transport = InProcessTransport(self.api.app, "admin", ("system:masters", "system:authenticated"))
        options = ClientOptions(time_source=TimeSource(self.clock))
        return WebhookCertificates(Client(transport, options), TLS, build_silent_logger())

    async def write(self, replica: WebhookCertificates, name: str = "one") -> bytes:
        await replica.write(self._folder / name)
        return (self._folder / name).read_bytes()

    async def get_bundles(self) -> list[str]:
        found = await self.api.get(f"{CONFIGURATIONS}/gpu-parameters")
        return [each["clientConfig"].get("caBundle", "") for each in found["webhooks"]]


def run(scenario: Callable[[Site], Awaitable[None]], folder: Path) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60), serving() as api:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu-system"}}
            await api.create(namespace)
            await api.create(CONFIGURATION, CONFIGURATIONS)
            await scenario(Site(api, folder))

    asyncio.run(bounded())


def test_a_client_that_trusts_the_configuration_trusts_the_certificate(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        await site.write(site.replica())
        bundle, other = await site.get_bundles()
        assert bundle == other
        served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        served.load_cert_chain(tmp_path / "one", tmp_path / "one")
        trusting = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
        trusting.verify_flags |= ssl.VERIFY_X509_STRICT

        async def hang_up(_reader: Any, writer: Any) -> None:
            writer.close()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=served)
        async with server:
            port = server.sockets[0].getsockname()[1]
            for name, trusted in (("gpu-webhook.gpu-system.svc", True), ("other.gpu-system.svc", False)):
                connecting = asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname=name)
                if trusted:
                    (await connecting)[1].close()
                else:
                    with pytest.raises(ssl.SSLCertVerificationError):
                        await connecting

    # The clock of the machine decides whether a certificate is valid.
    async def with_present_time(site: Site) -> None:
        site.clock = ManualClock(SystemClock().now())
        await scenario(site)

    run(with_present_time, tmp_path)


def test_replicas_that_start_together_share_one_certificate(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        names = [f"replica-{number}" for number in range(5)]
        written = await asyncio.gather(*(site.write(site.replica(), name) for name in names))
        assert len(set(written)) == 1
        assert (tmp_path / "replica-0").stat().st_mode & 0o077 == 0

    run(scenario, tmp_path)


def test_a_certificate_is_renewed_in_time_by_the_same_authority_and_others_take_it(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        first, second = site.replica(), site.replica()
        before = await site.write(first)
        bundles = await site.get_bundles()
        site.clock.advance(CERTIFICATE_LIFE.total_seconds() / 2)
        assert await site.write(first) == before
        site.clock.advance(CERTIFICATE_LIFE.total_seconds() / 4)
        after = await site.write(second, "two")
        assert after != before
        assert await site.write(first) == after
        assert await site.get_bundles() == bundles

    run(scenario, tmp_path)


@pytest.mark.parametrize(
    "data",
    [{"tls.crt": "", "tls.key": ""}, {"tls.crt": ""}, {"tls.crt": "AAAA", "ca.crt": "AAAA"}, None],
)
def test_a_broken_secret_is_replaced_and_the_configuration_follows(
    data: dict[str, str] | None, tmp_path: Path
) -> None:
    async def scenario(site: Site) -> None:
        replica = site.replica()
        before = await site.write(replica)
        if data is None:
            await site.api.delete(SECRET)
        else:
            await site.api.patch(SECRET, {"data": data})
        assert await site.write(replica) != before
        secret = await site.api.get(SECRET)
        assert await site.get_bundles() == [secret["data"]["ca.crt"]] * 2

    run(scenario, tmp_path)


def test_a_configuration_that_was_applied_again_gets_the_authority_again(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        replica = site.replica()
        await site.write(replica)
        where = f"{CONFIGURATIONS}/gpu-parameters"
        bundles = await site.get_bundles()
        await site.api.delete(where)
        await site.write(replica)  # there is none: that is no error
        await site.api.create(CONFIGURATION, CONFIGURATIONS)
        await site.write(replica)
        assert await site.get_bundles() == bundles

    run(scenario, tmp_path)


def test_a_new_authority_is_trusted_beside_the_old_one_until_that_expires() -> None:
    now = ManualClock().now()
    old = issue_key_pair(TLS.dns_names, now)
    due = now + AUTHORITY_LIFE * 0.7
    assert parse_key_pair(_data(old), TLS.dns_names, due) is None
    new = issue_key_pair(TLS.dns_names, due, parse_authority(_data(old), due))
    assert new.authorities.endswith(old.authorities)
    assert new.authorities.count(b"BEGIN") == 2
    assert parse_key_pair(_data(new), TLS.dns_names, due) == new
    later = now + AUTHORITY_LIFE + timedelta(days=1)
    latest = issue_key_pair(TLS.dns_names, later, parse_authority(_data(new), later))
    assert latest.authorities.count(b"BEGIN") == 1


def test_a_certificate_for_another_service_is_not_used() -> None:
    now = ManualClock().now()
    pair = issue_key_pair(TLS.dns_names, now)
    assert parse_key_pair(_data(pair), TLS.dns_names, now) == pair
    assert parse_key_pair(_data(pair), WebhookTls("gpu-system", "other").dns_names, now) is None


def _data(pair: Any) -> dict[str, bytes]:
    return {name: base64.b64decode(value) for name, value in pair.to_data().items()}
