"""Components renew their client certificates with the server, and nobody gets one that is not theirs."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dray.client.certificate_renewal import ClientCertificateRenewal
from dray.client.client import Client
from dray.client.config.client_config import ClientCredential, FileCredentialProvider
from dray.client.config.credential_files import CredentialFiles, RenewedCredential
from dray.client.config.kubeconfig import load_client_config
from dray.client.errors import ApiError, ForbiddenError
from dray.client.rest_client import ClientOptions
from dray.client.timing import TimeSource
from dray.client.transports.http import HttpTransport
from dray.clock import ManualClock
from dray.cluster.local.transport import LocalTransport
from dray.cluster.services.api_server import RunningServer, ServerProcessOptions, open_server
from dray.manifests.writer import to_yaml_block
from dray.server.auth.authn.certificates import CertificateAuthority, IssuedCredentials
from dray.server.auth.authn.kubeconfig import build_kubeconfig
from dray.server.http.requests import AUTHENTICATED, NODES
from dray.telemetry.logs import StructuredLogger
from dray.x509_certificates import (
    RENEWAL_PATH,
    build_renewal_request,
    generate_key,
    parse_certificates,
    parse_key_pem,
    read_subject,
)

NODE = "system:node:n1"
START = datetime.now(UTC) - timedelta(hours=17)
"""When certificates are issued, for a day."""
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


class Component:
    """A process with a kubeconfig, and a clock that can be ahead."""

    def __init__(self, server: RunningServer, kubeconfig: Path, keep: Path | None = None) -> None:
        self.clock = ManualClock(START)
        self.lines: list[str] = []
        time_source = TimeSource(self.clock)
        config = load_client_config(str(kubeconfig))
        provider = config.credential_provider
        assert isinstance(provider, FileCredentialProvider)
        source = provider.source if keep is None else RenewedCredential(keep, provider.source)
        self.provider = FileCredentialProvider(source, time_source)
        transport = HttpTransport(replace(config, credential_provider=self.provider))
        self.client = Client(transport, ClientOptions(time_source=time_source, max_attempts=1))
        log = StructuredLogger(self._write_line, self.clock)
        self.renewal = ClientCertificateRenewal(self.client, self.provider, log)

    def _write_line(self, line: bytes) -> bool:
        self.lines.append(line.decode())
        return True

    async def renew_later(self, hours: float) -> bool:
        self.clock.advance(hours * 3600)
        return await self.renewal.renew()

    async def ask_who(self) -> str:
        reviewed = await self.client.post_json(WHO, REVIEW)
        return str(reviewed["status"]["userInfo"]["username"])


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[RunningServer]:
    async with open_server(ServerProcessOptions(tmp_path / "server", "memory:", port=0)) as running:
        yield running


def issue(tmp_path: Path, user: str = NODE, *groups: str, days: int = 1) -> IssuedCredentials:
    authority = CertificateAuthority.open_for_clients(tmp_path / "server" / "keys", ManualClock(START))
    return authority.issue_client_certificate(user, groups or (NODES,), days)


def write_kubeconfig(server: RunningServer, path: Path, issued: IssuedCredentials, **user: str) -> Path:
    document = build_kubeconfig(server.url, server.authority, issued)
    if user:
        document["users"][0]["user"] = user
    path.write_text("# written by a person\n" + to_yaml_block(document))
    path.chmod(0o600)
    return path


@asynccontextmanager
async def running(component: Component) -> AsyncIterator[Component]:
    try:
        yield component
    finally:
        await component.client.close()


async def test_a_kubeconfig_gets_the_next_certificate_with_a_new_key(tmp_path: Path):
    async with serving(tmp_path) as server:
        issued = issue(tmp_path)
        file = write_kubeconfig(server, tmp_path / "node.kubeconfig", issued)
        async with running(Component(server, file)) as node:
            assert not await node.renew_later(12), "nothing is due"
            assert await node.ask_who() == NODE
            assert await node.renew_later(5)
            credential = await node.provider.get_credential()
            (before,), (after,) = (
                parse_certificates(issued.cert_pem),
                parse_certificates(credential.certificate),
            )
            assert read_subject(after) == read_subject(before) == (NODE, (NODES,))
            assert after.not_valid_after_utc > before.not_valid_after_utc
            assert after.public_key() != before.public_key()
            lifetimes = [each.not_valid_after_utc - each.not_valid_before_utc for each in (before, after)]
            assert lifetimes[0] == lifetimes[1]
            assert await node.ask_who() == NODE
            assert not await node.renewal.renew()
        text = file.read_text()
        assert text.startswith("# written by a person\n")
        assert base64.b64encode(credential.certificate).decode() in text
        assert base64.b64encode(issued.key_pem).decode() not in text
        assert file.stat().st_mode & 0o777 == 0o600
        assert b"dray_client_certificate_expiry_timestamp_seconds " in node.renewal.metrics.render()
        async with running(Component(server, file)) as again:
            assert await again.ask_who() == NODE


async def test_another_process_picks_up_what_one_renewed(tmp_path: Path):
    async with serving(tmp_path) as server:
        file = write_kubeconfig(server, tmp_path / "node.kubeconfig", issue(tmp_path))
        async with running(Component(server, file)) as one, running(Component(server, file)) as other:
            before = await other.provider.get_credential()
            assert await one.renew_later(17)
            assert await other.provider.get_credential() == before
            other.clock.advance(61)
            assert await other.provider.get_credential() == await one.provider.get_credential() != before
            assert await other.ask_who() == NODE


async def test_of_two_files_only_the_certificate_is_replaced(tmp_path: Path):
    async with serving(tmp_path) as server:
        issued = issue(tmp_path)
        certificate, key = tmp_path / "client.crt", tmp_path / "client.key"
        certificate.write_bytes(issued.cert_pem)
        key.write_bytes(issued.key_pem)
        paths = {"client-certificate": str(certificate), "client-key": str(key)}
        file = write_kubeconfig(server, tmp_path / "config", issued, **paths)
        async with running(Component(server, file)) as node:
            assert await node.renew_later(17)
            assert await node.ask_who() == NODE
        assert key.read_bytes() == issued.key_pem
        assert certificate.read_bytes() != issued.cert_pem
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key)


async def test_an_agent_keeps_what_it_renews_in_a_file_of_its_own(tmp_path: Path):
    async with serving(tmp_path) as server:
        file = write_kubeconfig(server, tmp_path / "node.kubeconfig", issue(tmp_path))
        given, kept = file.read_bytes(), tmp_path / "client.pem"
        async with running(Component(server, file, kept)) as node:
            assert await node.renew_later(17)
            renewed = await node.provider.get_credential()
        assert file.read_bytes() == given
        assert kept.stat().st_mode & 0o777 == 0o600
        async with running(Component(server, file, kept)) as again:
            found = await again.provider.get_credential()
            assert found.certificate.endswith(renewed.certificate)
            assert await again.ask_who() == NODE
        write_kubeconfig(server, file, issue(tmp_path, "system:node:n2"))
        async with running(Component(server, file, kept)) as other:
            assert await other.ask_who() == "system:node:n2", "the kubeconfig is of another node now"


async def test_a_certificate_that_cannot_be_stored_is_used_nevertheless(tmp_path: Path):
    async with serving(tmp_path) as server:
        file = write_kubeconfig(server, tmp_path / "real", issue(tmp_path))
        (tmp_path / "link").symlink_to(file)
        async with running(Component(server, tmp_path / "link")) as node:
            before = await node.provider.get_credential()
            assert await node.renew_later(17)
            node.clock.advance(61)
            assert await node.provider.get_credential() != before
            assert await node.ask_who() == NODE
            assert any("cannot be stored" in line and "is a link" in line for line in node.lines)
            write_kubeconfig(server, file, issue(tmp_path, "system:node:n3"))
            node.clock.advance(61)
            assert await node.ask_who() == "system:node:n3", "what somebody wrote there counts"


async def test_a_person_is_not_renewed_and_told_so_once(tmp_path: Path):
    async with serving(tmp_path) as server:
        file = write_kubeconfig(server, tmp_path / "jane", issue(tmp_path, "jane", "team"))
        content = file.read_bytes()
        async with running(Component(server, file)) as jane:
            for _ in range(3):
                assert not await jane.renew_later(6)
        assert file.read_bytes() == content
        assert len([line for line in jane.lines if "the client certificate is not renewed" in line]) == 1


async def test_a_half_written_pair_is_not_used(tmp_path: Path):
    async with serving(tmp_path):
        issued, following = issue(tmp_path), issue(tmp_path)
        certificate, key = tmp_path / "client.crt", tmp_path / "client.key"
        certificate.write_bytes(issued.cert_pem)
        key.write_bytes(issued.key_pem)
        clock = ManualClock()
        provider = FileCredentialProvider(
            CredentialFiles(certificate=str(certificate), key=str(key)), TimeSource(clock)
        )
        first = await provider.get_credential()
        key.write_bytes(following.key_pem)
        clock.advance(61)
        assert await provider.get_credential() == first
        certificate.write_bytes(following.cert_pem)
        clock.advance(61)
        assert await provider.get_credential() == ClientCredential("", following.cert_pem, following.key_pem)


def _sign_with(certificate: IssuedCredentials, key: bytes) -> dict[str, str]:
    parsed = parse_key_pem(key)
    assert parsed is not None
    return build_renewal_request(certificate.cert_pem, parsed, generate_key())


def _use_another_key(tmp_path: Path) -> dict[str, str]:
    return _sign_with(issue(tmp_path), issue(tmp_path).key_pem)


def _use_another_user(tmp_path: Path) -> dict[str, str]:
    other = issue(tmp_path, "system:node:n2")
    return _sign_with(other, other.key_pem)


def _use_more_groups(tmp_path: Path) -> dict[str, str]:
    other = issue(tmp_path, NODE, NODES, "system:masters")
    return _sign_with(other, other.key_pem)


def _use_another_authority(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "other").mkdir(mode=0o700)
    authority = CertificateAuthority.open_for_clients(tmp_path / "other")
    forged = authority.issue_client_certificate(NODE, (NODES,))
    return _sign_with(forged, forged.key_pem)


def _use_an_expired_one(tmp_path: Path) -> dict[str, str]:
    clock = ManualClock(datetime.now(UTC) - timedelta(days=2))
    authority = CertificateAuthority.open_for_clients(tmp_path / "server" / "keys", clock)
    expired = authority.issue_client_certificate(NODE, (NODES,), 1)
    return _sign_with(expired, expired.key_pem)


FORGERIES: tuple[tuple[Callable[[Path], dict[str, str]], int, str], ...] = (
    (_use_another_key, 400, "is not signed by the key of the certificate"),
    (_use_another_user, 403, "it is not a certificate of user `system:node:n1`"),
    (_use_more_groups, 403, "with the same groups"),
    (_use_another_authority, 403, "not a client certificate of this server's authority"),
    (_use_an_expired_one, 403, "it has expired"),
    (lambda _tmp_path: {}, 400, "expected `certificate`, `request` and `proof`"),
)


async def test_nobody_gets_a_certificate_that_is_not_theirs(tmp_path: Path):
    async with serving(tmp_path) as server:
        client = Client(LocalTransport(server.app, NODE, (NODES, AUTHENTICATED)))
        for build_request, code, why in FORGERIES:
            with pytest.raises(ApiError, match=why) as refused:
                await client.post_json(RENEWAL_PATH, build_request(tmp_path))
            assert refused.value.code == code


async def test_who_impersonates_a_node_gets_no_certificate_of_it(tmp_path: Path):
    async with serving(tmp_path) as server:
        own = issue(tmp_path)
        headers = {"Impersonate-User": NODE, "Impersonate-Group": NODES}
        transport = HttpTransport(replace(load_client_config(str(server.kubeconfig)), headers=headers))
        client = Client(transport)
        with pytest.raises(ForbiddenError, match="only the user of a certificate may renew it"):
            await client.post_json(RENEWAL_PATH, _sign_with(own, own.key_pem))
        await client.close()
