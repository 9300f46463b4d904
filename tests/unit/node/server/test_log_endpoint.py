"""What containers said, from the agent over the server to whoever may read it, and to nobody else."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dray.api.json_text import read_json
from dray.client.config.kubeconfig import load_client_config
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch
from dray.client.transport import TransportRequest
from dray.client.transports.http import HttpTransport
from dray.cluster.local.transport import LocalTransport
from dray.errors import InputError
from dray.node.agent import NodeAgent
from dray.node.server.certificate import load_or_create_certificate
from dray.server.auth.authn.certificates import CertificateAuthority
from dray.server.http.requests import AUTHENTICATED
from dray.server.registry.pod_logs import CERTIFICATE_ANNOTATION
from tests.unit.node.stage import NODE, Stage, container, played, pod

TALKS = "for i in 1 2 3; do echo line $i; done; echo oops >&2; sleep 600"
LOG = "line 1\nline 2\nline 3\noops\n"


@asynccontextmanager
async def agent(stage: Stage) -> AsyncIterator[NodeAgent]:
    async with stage.agent(port=0, client_ca=stage.server.authority) as running:
        yield running


async def asked(stage: Stage, name: str, user: str = "", **query: str) -> tuple[int, str]:
    """What the server answers for `pods/log`; the text of an error is its message."""
    http = HttpTransport(load_client_config(str(stage.server.kubeconfig)))
    if user:
        http = HttpTransport(
            replace(load_client_config(str(stage.server.kubeconfig)), headers={"Impersonate-User": user})
        )
    path = f"/api/v1/namespaces/default/pods/{name}/log"
    try:
        reply = await http.request(TransportRequest("GET", path, query))
    finally:
        await http.close()
    text = reply.body.decode()
    return reply.code, text if reply.code == 200 else read_json(reply.body)["message"]


async def said(stage: Stage, name: str, words: str, **query: str) -> str:
    """A log, as soon as some words are in it."""
    while True:
        code, text = await asked(stage, name, **query)
        if code == 200 and words in text:
            return text
        await asyncio.sleep(0.05)


def test_a_log_is_read_through_the_server(tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        async with agent(stage):
            await stage.create(pod("p", container("c", "sh", "-c", TALKS)))
            assert await said(stage, "p", "oops") == LOG
            assert await asked(stage, "p", tailLines="2") == (200, "line 3\noops\n")
            assert await asked(stage, "p", limitBytes="6") == (200, "line 1")
            assert await asked(stage, "p", container="c", sinceSeconds="3600") == (200, LOG)
            _, text = await asked(stage, "p", timestamps="true", tailLines="1")
            moment, _, words = text.partition(" ")
            assert words == "oops\n"
            assert abs(datetime.fromisoformat(moment) - datetime.now(UTC)) < timedelta(minutes=5)
            inside = LocalTransport(stage.server.app, "admin", ("system:masters", AUTHENTICATED))
            path = "/api/v1/namespaces/default/pods/p/log"
            async with inside.stream(TransportRequest("GET", path), idle_timeout=10) as stream:
                assert b"".join([part async for part in stream.chunks]).decode() == LOG

    played(tmp_path, work)


def test_a_log_is_followed_until_the_container_ends(tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        end = tmp_path / "end"
        script = f"echo first; while [ ! -e {end} ]; do sleep 0.05; done; echo last"
        async with agent(stage):
            await stage.create(pod("p", container("c", "sh", "-c", script), restartPolicy="Never"))
            await said(stage, "p", "first")
            http = HttpTransport(load_client_config(str(stage.server.kubeconfig)))
            path = "/api/v1/namespaces/default/pods/p/log"
            seen = b""
            async with http.stream(
                TransportRequest("GET", path, {"follow": "true"}), idle_timeout=20
            ) as stream:
                async for part in stream.chunks:
                    seen += part
                    end.touch()
            await http.close()
            assert seen == b"first\nlast\n"
            await stage.phase("p", "Succeeded")
            assert await asked(stage, "p") == (200, "first\nlast\n")

    played(tmp_path, work)


def test_the_log_of_the_container_before(tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        mark = tmp_path / "mark"
        script = f"if [ -e {mark} ]; then echo second; sleep 600; fi; touch {mark}; echo one; exit 1"
        async with agent(stage):
            await stage.create(pod("p", container("c", "sh", "-c", script)))
            assert await said(stage, "p", "second") == "second\n"
            assert await asked(stage, "p", previous="true") == (200, "one\n")

    played(tmp_path, work)


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ({"container": "x"}, 400, "container x is not valid for pod two"),
        ({}, 400, "a container name must be specified for pod two, choose one of: [a b]"),
        ({"container": "a", "previous": "true"}, 400, 'terminated container "a" in pod "two" not found'),
        ({"container": "a", "tailLines": "-1"}, 422, "tailLines: Invalid value"),
        ({"container": "a", "tailLines": "x"}, 400, "tailLines must be a whole number, not `x`"),
        ({"container": "a", "sinceSeconds": "1", "sinceTime": "2026-01-01T00:00:00Z"}, 422, "at most one"),
        ({"container": "a", "sinceTime": "yesterday"}, 400, "yesterday"),
        ({"container": "a", "sinceSeconds": "9" * 30}, 400, "sinceSeconds is longer than there are dates"),
        ({"container": "a", "sinceSeconds": "9" * 11}, 400, "sinceSeconds is longer than there are dates"),
    ],
)
def test_questions_that_have_no_answer(tmp_path: Path, query: dict[str, str], code: int, words: str) -> None:
    async def work(stage: Stage) -> None:
        async with agent(stage):
            await stage.create(pod("two", container("a"), container("b")))
            await stage.phase("two", "Running")
            answer, text = await asked(stage, "two", **query)
            assert (answer, words in text) == (code, True), text

    played(tmp_path, work)


def test_a_container_that_waits_says_for_what(tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        unbound = pod("unbound")
        del unbound["spec"]["nodeName"]
        async with agent(stage):
            await stage.create(pod("p", claim="missing"), unbound)
            await stage.until("p", lambda seen: "ClaimMissing" in str(seen["status"]))
            code, text = await asked(stage, "p")
            assert (code, text) == (400, 'container "c" in pod "p" is waiting to start: ClaimMissing')
            assert await asked(stage, "unbound") == (
                400,
                "pod unbound has no node yet, so it has no logs",
            )
            assert (await asked(stage, "nobody"))[0] == 404

    played(tmp_path, work)


def test_an_agent_that_does_not_answer_is_named(tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        async with agent(stage) as running:
            await stage.create(pod("p"))
            await stage.phase("p", "Running")
            address = running.address
        code, text = await asked(stage, "p")
        assert code == 500
        assert f"the agent of node {NODE} cannot be reached at {address}: connection refused" in text

    played(tmp_path, work)


def test_only_the_certificate_of_the_node_is_believed(tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        async with agent(stage):
            await stage.create(pod("p"))
            await stage.phase("p", "Running")
            for mark, words in (
                ("sha256:" + "00" * 32, "the certificate of the server there is not the one"),
                ("sha256:zz", "is no fingerprint"),
                (None, "does not say where its agent serves logs"),
            ):
                patch = MergePatch({"metadata": {"annotations": {CERTIFICATE_ANNOTATION: mark}}})
                await stage.admin.patch(get_kind("Node"), NODE, patch)
                code, text = await asked(stage, "p")
                assert (code, words in text) == (500, True), text

    played(tmp_path, work)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1/api/v1/secrets?x=", "127.0.0.1#", "someone@127.0.0.1", "a b", "::1/api", "fe80::1%lo/x"],
)
def test_an_address_that_asks_for_more_than_a_log_is_not_asked(tmp_path: Path, address: str) -> None:
    async def work(stage: Stage) -> None:
        async with agent(stage):
            await stage.create(pod("p", container("c", "sh", "-c", TALKS)))
            await said(stage, "p", "oops")
        status = {"addresses": [{"type": "InternalIP", "address": address}]}
        node = get_kind("Node")
        await stage.admin.patch(node, NODE, MergePatch({"status": status}), subresource="status")
        code, text = await asked(stage, "p")
        assert (code, f"`{address}`" in text, "is no address" in text) == (500, True, True), text

    played(tmp_path, work)


def test_who_may_read_logs_is_asked_of_roles(tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        async with agent(stage):
            await stage.create(pod("p", container("c", "sh", "-c", TALKS)))
            await said(stage, "p", "oops")
            code, text = await asked(stage, "p", "somebody")
            assert (code, 'cannot get resource "pods/log"' in text) == (403, True)
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "somebody"}
            await stage.create(
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "RoleBinding",
                    "metadata": {"name": "v", "namespace": "default"},
                    "roleRef": role,
                    "subjects": [subject],
                }
            )
            assert await asked(stage, "p", "somebody") == (200, LOG)

    played(tmp_path, work)


def test_an_agent_answers_the_server_and_nobody_else(tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        keys = tmp_path / "server" / "keys"
        async with agent(stage) as running:
            await stage.create(pod("p", container("c", "sh", "-c", TALKS)))
            await said(stage, "p", "oops")
            url = f"https://{running.address}/containerLogs/default/p/c"
            certificates = CertificateAuthority.open_for_clients(keys)
            everybody = certificates.issue_client_certificate("somebody")
            admin = certificates.issue_client_certificate("root", ("system:masters",))
            stranger = CertificateAuthority.open_for_clients(
                _folder(tmp_path / "other")
            ).issue_client_certificate("root")
            assert (await _got(url, None))[0] == 401
            assert (await _got(url, everybody))[0] == 403
            assert await _got(url, admin) == (200, LOG)
            assert (await _got(url + "x", admin))[0] == 404
            assert (await _got(url.replace("/p/", "/q/"), admin))[0] == 404
            with pytest.raises(aiohttp.ClientError):
                await _got(url, stranger)

    played(tmp_path, work)


def _folder(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return path


async def _got(url: str, shown: Any) -> tuple[int, str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if shown is not None:
        from tempfile import NamedTemporaryFile

        with NamedTemporaryFile() as file:
            file.write(shown.cert_pem + shown.key_pem)
            file.flush()
            context.load_cert_chain(file.name)
    async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as response:
        return response.status, await response.text()


def test_an_agent_keeps_its_certificate_until_that_nears_its_end(tmp_path: Path) -> None:
    file, now = tmp_path / "serving.pem", datetime(2026, 1, 1, tzinfo=UTC)
    first = load_or_create_certificate("n", file, now)
    assert file.stat().st_mode & 0o777 == 0o600
    assert load_or_create_certificate("n", file, now + timedelta(days=300)) == first
    second = load_or_create_certificate("n", file, now + timedelta(days=340))
    assert second.fingerprint != first.fingerprint
    file.write_text("damaged")
    assert load_or_create_certificate("n", file, now).fingerprint not in (
        first.fingerprint,
        second.fingerprint,
    )


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("127.0.0.1", "address already in use; choose another --port"),
        ("203.0.113.7", "cannot assign requested address; choose another --address"),
    ],
)
def test_where_nobody_can_listen_is_told(tmp_path: Path, host: str, why: str) -> None:
    async def work(stage: Stage) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(InputError) as refused:
                async with stage.agent(port=port, listen_address=host):
                    pass
            assert str(refused.value) == f"cannot listen on {host}:{port}: {why}"

    played(tmp_path, work)
