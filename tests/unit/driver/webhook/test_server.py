"""The admission webhook over real HTTP: reviews as API servers send them, and everything else."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from dray.api.json_text import read_json, write_json
from dray.driver.webhook.reviews import ParameterReviewConfig
from dray.driver.webhook.server import serve_webhook
from dray.errors import InputError
from dray.server.auth.authn.certificates import CertificateAuthority
from dray.webhook_server import MAX_BODY_BYTES, WebhookListenOptions

DRIVER = "gpu.example.com"
PLAIN = WebhookListenOptions("127.0.0.1:0", plain=True)


class Sharing(msgspec.Struct, forbid_unknown_fields=True):
    """What users may ask for."""

    replicas: int
    mode: str = "time"


async def _driver_of(name: str) -> str | None:
    return {"ours": DRIVER, "theirs": "other.example.com"}.get(name)


CHECKS = ParameterReviewConfig(DRIVER, Sharing, class_parameters=Sharing, class_driver_lookup=_driver_of)

Ask = Callable[..., Awaitable[tuple[int, Any]]]


def asked(scenario: Callable[[Ask], Awaitable[None]], checks: ParameterReviewConfig = CHECKS) -> None:
    """A webhook, and a way to ask it."""

    async def bounded() -> None:
        async with (
            asyncio.timeout(30),
            serve_webhook(checks, PLAIN) as url,
            aiohttp.ClientSession() as session,
        ):

            async def ask(body: Any, method: str = "POST", path: str = "") -> tuple[int, Any]:
                sent = body if isinstance(body, bytes) else write_json(body)
                where = url.removesuffix("/validate") + path if path else url
                async with session.request(method, where, data=io.BytesIO(sent)) as reply:
                    text = await reply.read()
                    is_json = reply.content_type == "application/json"
                    return reply.status, read_json(text) if is_json else text.decode()

            await scenario(ask)

    asyncio.run(bounded())


def review(obj: Any, operation: str = "CREATE", old: Any = None) -> dict[str, Any]:
    request = {"uid": "u-1", "operation": operation, "object": obj, "oldObject": old}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def config(parameters: Any, driver: str = DRIVER) -> list[dict[str, Any]]:
    return [{"opaque": {"driver": driver, "parameters": parameters}}]


def claim(parameters: Any, version: str = "v1", driver: str = DRIVER) -> dict[str, Any]:
    exactly = {"deviceClassName": "gpu"}
    request = {"name": "g", **exactly} if version == "v1beta1" else {"name": "g", "exactly": exactly}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": [request], "config": config(parameters, driver)}},
    }


def template(parameters: Any, version: str) -> dict[str, Any]:
    made = claim(parameters, version)
    return {**made, "kind": "ResourceClaimTemplate", "spec": {"spec": made["spec"]}}


def device_class(parameters: Any, version: str) -> dict[str, Any]:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"config": config(parameters)},
    }


@pytest.mark.req("K3063-028")
@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
@pytest.mark.parametrize(
    ("made", "place"),
    [
        (claim, "spec.devices.config[0].opaque.parameters"),
        (template, "spec.spec.devices.config[0].opaque.parameters"),
        (device_class, "spec.config[0].opaque.parameters"),
    ],
)
def test_parameters_are_checked_in_every_kind_and_version(made: Any, place: str, version: str) -> None:
    async def scenario(ask: Ask) -> None:
        code, good = await ask(review(made({"replicas": 2}, version)))
        assert code == 200
        assert good == {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": "u-1", "allowed": True},
        }
        code, bad = await ask(review(made({"replicas": "two", "mod": "x"}, version)))
        assert code == 200
        assert not bad["response"]["allowed"]
        message = bad["response"]["status"]["message"]
        assert f"{place}.replicas: expected a whole number" in message
        assert f"{place}.mod: unknown field; did you mean `mode`?" in message

    asked(scenario)


@pytest.mark.req("K3063-028")
def test_classic_classes_and_claims_are_checked_when_they_are_for_this_driver() -> None:
    def classic(kind: str, driver: str, parameters: Any) -> dict[str, Any]:
        made = {"apiVersion": "cdi.k8s.io/v1alpha1", "kind": kind, "metadata": {"name": "x"}}
        if kind == "ResourceClass":
            return {**made, "driverName": driver, "parameters": parameters}
        return {**made, "spec": {"resourceClassName": driver, "parameters": parameters}}

    async def scenario(ask: Ask) -> None:
        for kind, ours, theirs in (
            ("ResourceClass", DRIVER, "other.example.com"),
            ("ResourceClaim", "ours", "theirs"),
        ):
            answers = [
                (await ask(review(classic(kind, driver, {"replicas": value}))))[1]["response"]["allowed"]
                for driver, value in ((ours, 1), (ours, "one"), (theirs, "one"), ("nobody", "one"))
            ]
            assert answers == [True, False, True, True], kind

    asked(scenario)


@pytest.mark.parametrize(
    "document",
    [
        claim({"anything": 1}, driver="other.example.com"),
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}},
        {"apiVersion": "example.com/v1", "kind": "Thing"},
        {},
        None,
    ],
)
def test_objects_without_parameters_of_the_driver_are_allowed(document: Any) -> None:
    async def scenario(ask: Ask) -> None:
        assert (await ask(review(document)))[1]["response"]["allowed"]

    asked(scenario)


def test_an_object_that_cannot_be_read_is_left_to_the_server_with_a_warning() -> None:
    async def scenario(ask: Ask) -> None:
        _, answer = await ask(review({**claim({"replicas": 1}), "spec": "nonsense"}))
        assert answer["response"]["allowed"]
        assert "were not checked" in answer["response"]["warnings"][0]

    asked(scenario)


def test_old_mistakes_do_not_keep_an_object_from_being_changed_or_deleted() -> None:
    async def scenario(ask: Ask) -> None:
        wrong = claim({"replicas": "two"})
        finished = {**wrong, "metadata": {**wrong["metadata"], "finalizers": []}}
        for operation, obj, old, allowed in (
            ("UPDATE", finished, wrong, True),
            ("DELETE", None, wrong, True),
            ("CONNECT", wrong, None, True),
            ("UPDATE", claim({"replicas": "three"}), wrong, False),
        ):
            _, answer = await ask(review(obj, operation, old))
            assert answer["response"]["allowed"] is allowed, operation

    asked(scenario)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"null",
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","request":{"uid":"u"}}',
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}',
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":7}}',
        b"[" * 100_000,
    ],
)
def test_a_body_that_is_no_review_is_answered_with_400_and_a_reason(body: bytes) -> None:
    async def scenario(ask: Ask) -> None:
        code, text = await ask(body)
        assert code == 400
        assert "Traceback" not in text
        assert text.strip()

    asked(scenario)


def test_wrong_methods_paths_and_sizes_are_refused_and_health_is_served() -> None:
    async def scenario(ask: Ask) -> None:
        assert (await ask(b"", "GET"))[0] == 405
        assert (await ask(b"", "POST", "/elsewhere"))[0] == 404
        assert (await ask(b"x" * (MAX_BODY_BYTES + 1)))[0] == 413
        assert (await ask(b"", "GET", "/readyz")) == (200, "ok\n")

    asked(scenario)


def test_a_body_that_never_arrives_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.webhook_server.BODY_TIMEOUT_SECONDS", 0.05)

    async def scenario() -> None:
        async with asyncio.timeout(30), serve_webhook(CHECKS, PLAIN) as url:
            place = url.removeprefix("http://").partition("/")[0]
            reader, writer = await asyncio.open_connection(*place.split(":"))
            writer.write(f"POST /validate HTTP/1.1\r\nHost: {place}\r\nContent-Length: 9\r\n\r\n{{".encode())
            assert b" 408 " in await reader.readline()
            writer.close()
            await writer.wait_closed()

    asyncio.run(scenario())


def test_a_fault_of_the_webhook_is_500_without_a_traceback() -> None:
    async def broken(_name: str) -> str | None:
        raise RuntimeError("secret detail")

    async def scenario(ask: Ask) -> None:
        code, text = await ask(
            review(
                {
                    "apiVersion": "cdi.k8s.io/v1alpha1",
                    "kind": "ResourceClaim",
                    "spec": {"resourceClassName": "x", "parameters": {}},
                }
            )
        )
        assert code == 500
        assert "secret" not in text
        assert "Traceback" not in text

    asked(scenario, ParameterReviewConfig(DRIVER, Sharing, class_driver_lookup=broken))


def test_it_serves_https_with_its_certificate(tmp_path: Path) -> None:
    certificates = CertificateAuthority.open(tmp_path, ("localhost", "127.0.0.1"))
    (tmp_path / "authority.pem").write_bytes(certificates.ca_pem)
    where = WebhookListenOptions("127.0.0.1:0", certificates.serving_file, certificates.serving_file)

    async def scenario() -> None:
        context = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
        async with serve_webhook(CHECKS, where) as url, aiohttp.ClientSession() as session:
            assert url.startswith("https://")
            async with session.post(
                url, data=write_json(review(claim({"replicas": 1}))), ssl=context
            ) as reply:
                assert (await reply.json())["response"]["allowed"]

    asyncio.run(scenario())


def test_without_a_certificate_or_with_a_broken_one_it_does_not_start(tmp_path: Path) -> None:
    async def start(where: WebhookListenOptions) -> None:
        async with serve_webhook(CHECKS, where):
            pass

    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for where, says in (
        (WebhookListenOptions("127.0.0.1:0"), "call a webhook over HTTPS"),
        (WebhookListenOptions("127.0.0.1:0", broken, broken), "broken.pem"),
        (WebhookListenOptions("127.0.0.1:0", tmp_path / "none", broken), "No such file"),
        (WebhookListenOptions("nowhere", plain=True), "expected HOST:PORT"),
    ):
        with pytest.raises(InputError, match=says):
            asyncio.run(start(where))
