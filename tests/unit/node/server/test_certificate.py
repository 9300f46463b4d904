"""An agent renews its serving certificate, and the server trusts what it shows at every moment."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from dray.client.errors import ServerUnreachableError
from dray.client.timing import TimeSource
from dray.clock import ManualClock
from dray.node.server.certificate import AgentTls
from dray.telemetry.logs import build_silent_logger

DAY = 86_400.0


class Agent:
    """The certificate of an agent, and the fingerprints that the server knows."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.file = directory / "serving.pem"
        self.tls = AgentTls("n", self.file, b"", TimeSource(self.clock), build_silent_logger())
        self.known: list[tuple[str, ...]] = [(self.tls.fingerprint,)]
        self.reachable = True

    async def publish(self, fingerprints: tuple[str, ...]) -> None:
        if not self.reachable:
            raise ServerUnreachableError("no answer", sent=False)
        assert self.shown in fingerprints, "what is shown before the switch must stay trusted"
        self.known.append(fingerprints)

    @property
    def shown(self) -> str:
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        near = client.wrap_bio(to_client, to_server, server_hostname="n")
        far = self.tls.context.wrap_bio(to_server, to_client, server_side=True)
        for _ in range(4):
            for side in (near, far):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        shown = near.getpeercert(binary_form=True)
        assert shown is not None
        return x509.load_der_x509_certificate(shown).fingerprint(hashes.SHA256()).hex()


async def test_both_fingerprints_are_known_before_the_certificate_changes(tmp_path: Path):
    agent = Agent(tmp_path)
    old = agent.shown
    await agent.tls.renew(agent.publish)
    assert agent.known == [(old,)], "nothing is due"
    agent.clock.advance(250 * DAY)
    await agent.tls.renew(agent.publish)
    new = agent.shown
    assert new != old
    assert agent.known == [(old,), (new, old)]
    await agent.tls.renew(agent.publish)
    assert agent.known == [(old,), (new, old), (new,)]
    await agent.tls.renew(agent.publish)
    assert len(agent.known) == 3
    assert agent.file.stat().st_mode & 0o777 == 0o600
    assert agent.tls.expiry > agent.clock.now()


async def test_the_old_certificate_serves_while_the_server_cannot_be_told(tmp_path: Path):
    agent = Agent(tmp_path)
    old, content = agent.shown, agent.file.read_bytes()
    agent.clock.advance(250 * DAY)
    agent.reachable = False
    with pytest.raises(ServerUnreachableError):
        await agent.tls.renew(agent.publish)
    assert (agent.shown, agent.file.read_bytes()) == (old, content)
    agent.reachable = True
    await agent.tls.renew(agent.publish)
    assert agent.shown != old
