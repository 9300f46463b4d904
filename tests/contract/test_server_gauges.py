"""What alerts read of a server: how far the ledger is from the claims, and when certificates expire."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

from dray.claims.ledger.rows import build_preparation_key
from dray.cluster.services.api_server import STORE_FILE, RunningServer, ServerProcessOptions, open_server
from dray.cluster.services.certificate_renewal import read_kubeconfig_certificate
from dray.server.auth.authn.certificates import CertificateAuthority
from dray.store import Put, open_store

DAY = 86_400


def read(server: RunningServer, name: str) -> dict[str, float]:
    """The series of a metric by their labels."""
    found = re.findall(rf"^{name}(\S*) (\S+)$", server.metrics.render().decode(), re.MULTILINE)
    return {labels: float(value) for labels, value in found}


async def test_rows_without_a_claim_are_counted(tmp_path: Path) -> None:
    async with await open_store(str(tmp_path / STORE_FILE)) as store:
        await store.txn([], [Put(build_preparation_key("nobody"), b'{"format":1,"node":"n1"}')])
    async with open_server(ServerProcessOptions(tmp_path, port=0)) as server, asyncio.timeout(30):
        while read(server, "dray_ledger_differences") != {"": 1.0}:
            await asyncio.sleep(0.05)


async def test_a_ledger_that_agrees_counts_none(tmp_path: Path) -> None:
    async with (
        open_server(ServerProcessOptions(tmp_path, "memory:", port=0)) as server,
        asyncio.timeout(30),
    ):
        while read(server, "dray_ledger_differences") != {"": 0.0}:
            await asyncio.sleep(0.05)


async def test_the_server_tells_when_its_certificates_expire(tmp_path: Path) -> None:
    async with open_server(ServerProcessOptions(tmp_path, "memory:", port=0)) as server:
        authority = CertificateAuthority.open_for_clients(tmp_path / "keys")
        shown = {
            "ca": authority.ca_certificate,
            "serving": authority.read_serving_certificate(),
            "admin": read_kubeconfig_certificate(server.kubeconfig),
        }
        times = {
            name: each.not_valid_after_utc.timestamp() for name, each in shown.items() if each is not None
        }
        assert read(server, "dray_certificate_expiry_timestamp_seconds") == {
            f'{{certificate="{name}"}}': when for name, when in times.items()
        }
        assert set(times) == set(shown)
        assert all(when > time.time() + 30 * DAY for when in times.values())
