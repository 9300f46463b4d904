"""Container logs, from the agent through the server to authorized users only."""

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
from tests.unit.node.agent_harness import NODE, AgentHarness, container, pod, run_on_node

TALKS = "for i in 1 2 3; do echo line $i; done; echo oops >&2; sleep 600"
LOG = "line 1\nline 2\nline 3\noops\n"


@asynccontextmanager
async def agent(harness: AgentHarness) -> AsyncIterator[NodeAgent]:
    async with harness.agent(port=0, client_ca=harness.server.authority) as running:
        yield running


async def asked(harness: AgentHarness, name: str, user: str = "", **query: str) -> tuple[int, str]:
    """What the server answers for `pods/log`; the text of an error is its message."""
    http = HttpTransport(load_client_config(str(harness.server.kubeconfig)))
    if user:
        http = HttpTransport(
            replace(load_client_config(str(harness.server.kubeconfig)), headers={"Impersonate-User": user})
        )
    path = f"/api/v1/namespaces/default/pods/{name}/log"
    try:
        reply = await http.request(TransportRequest("GET", path, query))
    finally:
        await http.close()
    text = reply.body.decode()
    return reply.code, text if reply.code == 200 else read_json(reply.body)["message"]


async def said(harness: AgentHarness, name: str, words: str, **query: str) -> str:
    """A log, as soon as some words are in it."""
    while True:
        code, text = await asked(harness, name, **query)
        if code == 200 and words in text:
            return text
        await asyncio.sleep(0.05)


def test_a_log_is_read_through_the_server(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with agent(harness):
            await harness.create(pod("p", container("c", "sh", "-c", TALKS)))
            assert await said(harness, "p", "oops") == LOG
            assert await asked(harness, "p", tailLines="2") == (200, "line 3\noops\n")
            assert await asked(harness, "p", limitBytes="6") == (200, "line 1")
            assert await asked(harness, "p", container="c", sinceSeconds="3600") == (200, LOG)
            _, text = await asked(harness, "p", timestamps="true", tailLines="1")
            moment, _, words = text.partition(" ")
            assert words == "oops\n"
            assert abs(datetime.fromisoformat(moment) - datetime.now(UTC)) < timedelta(minutes=5)
            inside = LocalTransport(harness.server.app, "admin", ("system:masters", AUTHENTICATED))
            path = "/api/v1/namespaces/default/pods/p/log"
            async with inside.stream(TransportRequest("GET", path), idle_timeout=10) as stream:
                assert b"".join([part async for part in stream.chunks]).decode() == LOG

    run_on_node(tmp_path, work)


def test_a_log_is_followed_until_the_container_ends(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        end = tmp_path / "end"
        script = f"echo first; while [ ! -e {end} ]; do sleep 0.05; done; echo last"
        async with agent(harness):
            await harness.create(pod("p", container("c", "sh", "-c", script), restartPolicy="Never"))
            await said(harness, "p", "first")
            http = HttpTransport(load_client_config(str(harness.server.kubeconfig)))
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
            await harness.phase("p", "Succeeded")
            assert await asked(harness, "p") == (200, "first\nlast\n")

    run_on_node(tmp_path, work)


def test_the_log_of_the_container_before(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        mark = tmp_path / "mark"
        script = f"if [ -e {mark} ]; then echo second; sleep 600; fi; touch {mark}; echo one; exit 1"
        async with agent(harness):
            await harness.create(pod("p", container("c", "sh", "-c", script)))
            assert await said(harness, "p", "second") == "second\n"
            assert await asked(harness, "p", previous="true") == (200, "one\n")

    run_on_node(tmp_path, work)


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
    async def work(harness: AgentHarness) -> None:
        async with agent(harness):
            await harness.create(pod("two", container("a"), container("b")))
            await harness.phase("two", "Running")
            answer, text = await asked(harness, "two", **query)
            assert (answer, words in text) == (code, True), text

    run_on_node(tmp_path, work)


def test_the_log_of_a_waiting_container_is_an_error_with_its_reason(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        unbound = pod("unbound")
        del unbound["spec"]["nodeName"]
        async with agent(harness):
            await harness.create(pod("p", claim="missing"), unbound)
            await harness.until("p", lambda seen: "ClaimMissing" in str(seen["status"]))
            code, text = await asked(harness, "p")
            assert (code, text) == (400, 'container "c" in pod "p" is waiting to start: ClaimMissing')
            assert await asked(harness, "unbound") == (
                400,
                "pod unbound has no node yet, so it has no logs",
            )
            assert (await asked(harness, "nobody"))[0] == 404

    run_on_node(tmp_path, work)


def test_an_agent_that_does_not_answer_is_named(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with agent(harness) as running:
            await harness.create(pod("p"))
            await harness.phase("p", "Running")
            address = running.address
        code, text = await asked(harness, "p")
        assert code == 500
        assert f"the agent of node {NODE} cannot be reached at {address}: connection refused" in text

    run_on_node(tmp_path, work)


def test_only_the_certificate_of_the_node_is_believed(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with agent(harness):
            await harness.create(pod("p"))
            await harness.phase("p", "Running")
            for mark, words in (
                ("sha256:" + "00" * 32, "the certificate of the server there is not the one"),
                ("sha256:zz", "is no fingerprint"),
                (None, "does not say where its agent serves logs"),
            ):
                patch = MergePatch({"metadata": {"annotations": {CERTIFICATE_ANNOTATION: mark}}})
                await harness.admin.patch(get_kind("Node"), NODE, patch)
                code, text = await asked(harness, "p")
                assert (code, words in text) == (500, True), text

    run_on_node(tmp_path, work)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1/api/v1/secrets?x=", "127.0.0.1#", "someone@127.0.0.1", "a b", "::1/api", "fe80::1%lo/x"],
)
def test_an_address_that_asks_for_more_than_a_log_is_not_asked(tmp_path: Path, address: str) -> None:
    async def work(harness: AgentHarness) -> None:
        async with agent(harness):
            await harness.create(pod("p", container("c", "sh", "-c", TALKS)))
            await said(harness, "p", "oops")
        status = {"addresses": [{"type": "InternalIP", "address": address}]}
        node = get_kind("Node")
        await harness.admin.patch(node, NODE, MergePatch({"status": status}), subresource="status")
        code, text = await asked(harness, "p")
        assert (code, f"`{address}`" in text, "is no address" in text) == (500, True, True), text

    run_on_node(tmp_path, work)


def test_reading_logs_is_authorized_by_roles(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with agent(harness):
            await harness.create(pod("p", container("c", "sh", "-c", TALKS)))
            await said(harness, "p", "oops")
            code, text = await asked(harness, "p", "somebody")
            assert (code, 'cannot get resource "pods/log"' in text) == (403, True)
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "somebody"}
            await harness.create(
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "RoleBinding",
                    "metadata": {"name": "v", "namespace": "default"},
                    "roleRef": role,
                    "subjects": [subject],
                }
            )
            assert await asked(harness, "p", "somebody") == (200, LOG)

    run_on_node(tmp_path, work)


def test_an_agent_serves_only_the_api_server(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        keys = tmp_path / "server" / "keys"
        async with agent(harness) as running:
            await harness.create(pod("p", container("c", "sh", "-c", TALKS)))
            await said(harness, "p", "oops")
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

    run_on_node(tmp_path, work)


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
    assert load_or_create_certificate("n", file, now + timedelta(days=200)) == first
    second = load_or_create_certificate("n", file, now + timedelta(days=244))
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
def test_an_address_that_cannot_be_bound_is_an_input_error(tmp_path: Path, host: str, why: str) -> None:
    async def work(harness: AgentHarness) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(InputError) as refused:
                async with harness.agent(port=port, listen_address=host):
                    pass
            assert str(refused.value) == f"cannot listen on {host}:{port}: {why}"

    run_on_node(tmp_path, work)
