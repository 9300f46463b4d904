"""S-13: secrets go everywhere a client can put them, and afterwards nothing the server wrote has them.

Searched are the lines of the log at its most talkative, the audit log, the metrics, and what other users are
told; what the owner of a secret reads back is of course the secret.
"""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass, field
from pathlib import Path

from bench.lean import Address, Wire, connect, packed
from dray.api.json_text import write_json
from dray.clock import SystemClock
from dray.cluster.services.api_server import ServerProcessOptions, open_server
from dray.telemetry.logs import LogLevel, StructuredLogger

STATIC = "static-Zx81QwErTyUiOp"
WRONG = "wrong-Zx81AsDfGhJkL"
JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6InEifQ.eyJzdWIiOiJzcHkifQ.c3B5LXNpZ25hdHVyZS1aeDgx"
PASSWORD = "hunter-Zx81MnBvCxZ"
ENCODED = base64.b64encode(PASSWORD.encode()).decode()
CORE = "/api/v1/namespaces/default"


@dataclass
class Findings:
    """Where a secret was found, and how much was searched."""

    leaks: list[str] = field(default_factory=list)
    requests: int = 0
    searched: dict[str, int] = field(default_factory=dict)
    metrics: str = ""

    def __str__(self) -> str:
        return f"{self.requests} requests, {len(self.leaks)} leaks, searched {self.searched}"


def _with(request: bytes, **headers: str) -> bytes:
    lines = "".join(f"\r\n{name.replace('_', '-')}: {value}" for name, value in headers.items())
    return request.replace(b"\r\n\r\n", f"{lines}\r\n\r\n".encode(), 1)


def _secret(name: str, **more: object) -> bytes:
    return write_json({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, **more})


def _review(token: str) -> bytes:
    return write_json(
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    )


def requests() -> list[bytes]:
    """Requests with secrets in every place."""
    bearer = f"Bearer {STATIC}"
    annotated = {"name": "m", "annotations": {"note": f"Bearer {JWT}"}}
    wrong_patch = write_json([{"op": "test", "path": "/data/password", "value": PASSWORD}])
    return [
        _with(packed("GET", f"{CORE}/pods"), authorization=bearer),
        *(_with(packed("GET", f"{CORE}/pods"), authorization=f"Bearer {token}") for token in (WRONG, JWT)),
        _with(packed("GET", f"{CORE}/pods"), authorization=f"Basic {ENCODED}"),
        _with(packed("GET", f"{CORE}/pods"), authorization=f"  bearer\t{WRONG}"),
        packed("GET", f"{CORE}/pods?token={STATIC}&access_token={JWT}&fieldManager={JWT}"),
        packed("GET", f"{CORE}/pods?labelSelector=a%3D{JWT}&limit={JWT}"),
        packed("GET", f"{CORE}/pods/{JWT}"),
        packed("GET", f"/apis/{JWT}/v1/{JWT}"),
        _with(packed("GET", f"{CORE}/pods"), impersonate_user=JWT, authorization=bearer),
        _with(packed("GET", f"{CORE}/pods"), user_agent=f"tool/{JWT}", audit_id=JWT),
        packed("POST", f"{CORE}/secrets", _secret("s", data={"password": ENCODED})),
        packed("POST", f"{CORE}/secrets", _secret("t", stringData={"password": PASSWORD}, type=5)),
        packed("POST", f"{CORE}/secrets", _secret("!", data={"password": PASSWORD})),
        packed("PUT", f"{CORE}/secrets/s", _secret("s", data={"password": ENCODED, "x": 7})),
        packed("PUT", f"{CORE}/secrets/s", f'{{"password": "{PASSWORD}", '.encode()),
        packed("PATCH", f"{CORE}/secrets/s", wrong_patch).replace(
            b"application/json\r\ncontent-l", b"application/json-patch+json\r\ncontent-l"
        ),
        packed("POST", f"{CORE}/secrets?dryRun=All&pretty={PASSWORD}", _secret("u", data=PASSWORD)),
        packed("POST", "/apis/authentication.k8s.io/v1/tokenreviews", _review(STATIC)),
        packed("POST", "/apis/authentication.k8s.io/v1/tokenreviews", _review(JWT)),
        packed(
            "POST",
            f"{CORE}/configmaps",
            write_json({"apiVersion": "v1", "kind": "ConfigMap", "metadata": annotated}),
        ),
        _with(
            packed("DELETE", f"{CORE}/configmaps?labelSelector=a%3D{JWT}"),
            user_agent=f"tool/{JWT}",
            audit_id=JWT,
        ),
        packed("GET", f"{CORE}/secrets/s"),
        packed("DELETE", f"{CORE}/secrets/s"),
        f"GET /{JWT} HTTQ/9\r\nauthorization: {bearer}\r\n\r\n".encode(),
    ]


_TOKEN = f"{CORE}/serviceaccounts/default/token"


async def _account_token(wire: Wire) -> str:
    """A token that the server itself signs."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    code, answer = await wire.call(packed("POST", _TOKEN, write_json(body)))
    assert code == 201, answer
    return str(json.loads(answer)["status"]["token"])


async def campaign(folder: Path) -> Findings:
    """Send secrets everywhere, then search."""
    found, lines = Findings(), []

    def took(line: bytes) -> bool:
        lines.append(line)
        return True

    folder.mkdir(parents=True, exist_ok=True)
    tokens = folder / "tokens.csv"
    tokens.write_text(f'{STATIC},jane,1,"system:masters"\n')
    tokens.chmod(0o600)
    log = StructuredLogger(took, SystemClock(), level=LogLevel.DEBUG)
    options = ServerProcessOptions(
        folder / "server", "memory:", port=0, tokens=tokens, anonymous=True, log=log
    )
    async with open_server(options) as started:
        address = Address.of_kubeconfig(started.kubeconfig)
        wire = await connect(address)
        signed = await _account_token(wire)
        for request in (*requests(), _with(packed("GET", f"{CORE}/pods"), authorization=f"Bearer {signed}")):
            found.requests += 1
            await _sent(address, request)
        metrics = (await wire.call(packed("GET", "/metrics")))[1]
        wire.transport.abort()
    written = {
        "log": b"".join(lines),
        "audit": (options.directory / "audit.log").read_bytes(),
        "metrics": metrics,
    }
    for secret in (STATIC, WRONG, JWT, PASSWORD, ENCODED, signed, signed.rpartition(".")[2]):
        for place, text in written.items():
            if secret.encode() in text:
                line = next(line for line in text.splitlines() if secret.encode() in line)
                found.leaks.append(f"{place}: {line[:400]!r}")
    found.metrics = metrics.decode()
    found.searched = {place: len(text) for place, text in written.items()}
    return found


async def _sent(address: Address, request: bytes) -> None:
    """Each on a connection of its own: some are refused with a closed connection."""
    wire = await connect(address)
    try:
        await asyncio.wait_for(wire.call(request), 10)
    except (ConnectionError, TimeoutError, ValueError):
        pass
    finally:
        wire.transport.abort()
