"""Manifests of drivers: their rights are the ones that the kit uses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.client.client import Client
from dray.client.errors import ForbiddenError
from dray.client.object_refs import get_kind
from dray.client.transport import TransportRequest
from dray.client.webhooks.certificates import WebhookCertificates, WebhookTls
from dray.driver import Driver, device
from dray.driver.classic.controller_service import ClassicControllerOptions, ClassicControllerService
from dray.driver.classic.inventory import CONFIG_MAP, publish_inventory
from dray.driver.classic.retries import ClassicRetryDelay
from dray.driver.deploy.manifests import build_manifests
from dray.driver.deploy.objects import shorten_driver_name
from dray.driver.service.cluster_commands import make_class_driver_lookup
from dray.telemetry.logs import build_silent_logger
from tests.contract.api import path
from tests.contract.classic import CLAIMS, classic_claim
from tests.support.in_process_transport import InProcessTransport
from tests.unit.driver.deploy.deployed_drivers import TARGET, Fpga, Told, Units, granted
from tests.unit.driver.driver_node import NODE, DriverNode, open_driver_node
from tests.unit.driver.driver_server import InterceptedTransport, serve_for_drivers, wait_until


def asked_for(requests: Iterable[TransportRequest]) -> Iterator[tuple[str, str, str]]:
    """The rights that requests need: verb, group and resource."""
    for request in requests:
        parts = request.path.strip("/").split("/")
        group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
        if parts[0] not in ("api", "apis") or not rest:
            continue  # discovery, which everybody may ask
        if rest[0] == "namespaces" and len(rest) > 2:
            rest = rest[2:]
        resource = rest[0] + (f"/{rest[2]}" if len(rest) > 2 else "")
        verbs = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
        if request.method == "GET":
            verb = "watch" if "watch" in request.query else "get" if len(rest) > 1 else "list"
        else:
            verb = verbs[request.method]
        yield verb, group, resource


def account(node: Any, driver: Driver, part: str, on: str = "") -> InterceptedTransport:
    """The transport of a part's account, as a pod of it would have it."""
    namespace = shorten_driver_name(driver.name)
    user = f"system:serviceaccount:{namespace}:{namespace}-{part}"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    return InterceptedTransport(
        InProcessTransport(node.app, user, (*groups, *([f"dray:on-node:{on}"] if on else [])))
    )


async def applied(admin: Client, driver: Driver) -> list[dict[str, Any]]:
    documents = build_manifests(driver, TARGET)
    for document in documents:
        await admin.create(document)
    return documents


class Fewer(Told):
    """Reports fewer and fewer devices."""

    left = 300

    def devices(self) -> Iterable[Any]:
        return [device(f"gpu-{number}") for number in range(self.left)]


@pytest.mark.req("K3063-045")
def test_the_node_part_runs_with_exactly_the_rights_of_its_account() -> None:
    async def scenario(node: DriverNode) -> None:
        driver = Fewer()
        documents = await applied(node.server.admin, driver)
        node.transport = account(node.server.api, driver, "node", NODE)
        uid, gone = await node.create_claim("c"), await node.create_claim("gone", "gpu-1")
        async with node.run_driver(driver) as agent:
            await agent.prepare_ok(uid, "c")
            await agent.prepare_ok(gone, "gone")
            await wait_until(lambda: _reported(node, "c"))
            driver.left = 2  # slices are changed, and others deleted
            driver.changed()
            await wait_until(node.server.slices, lambda slices: len(slices) == 1)
            await agent.unprepare_ok(uid, "c")
        where = path("resourceclaims", "gone")
        cleared = {"reservedFor": None, "allocation": None, "devices": None}
        await node.server.api.patch(f"{where}/status", {"status": cleared})
        await node.server.api.delete(where)
        await node.server.api.gone(where)
        async with node.run_driver(driver):  # finds a claim that went away meanwhile
            await wait_until(lambda: _watched(node.transport))
        wanted = granted(documents, "node") - {
            ("associated-node:patch", "resource.k8s.io", "resourceclaims/driver")
        }
        assert set(asked_for(node.transport.requests)) == wanted
        assert "Forbidden" not in node.log_text
        assert "cannot" not in node.log_text

    run_on_node(scenario)


async def _watched(transport: InterceptedTransport) -> bool:
    rights = set(asked_for(transport.requests))
    return ("watch", "resource.k8s.io", "resourceslices") in rights and (
        "list",
        "dray.dev",
        "preparations",
    ) in rights


def run_on_node(scenario: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60), open_driver_node() as node:
            await scenario(node)

    asyncio.run(bounded())


async def _reported(node: DriverNode, name: str) -> bool:
    claim = await node.server.api.get(path("resourceclaims", name))
    return bool(claim["status"].get("devices"))


@pytest.mark.req("K3063-045", "K3063-053", "K3063-149", "K3063-151")
def test_the_controller_and_the_webhook_run_with_exactly_the_rights_of_their_accounts(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(60), serve_for_drivers() as world:
            driver = Fpga()
            namespace = shorten_driver_name(driver.name)
            documents = await applied(world.admin, driver)
            on_the_node = account(world.api, driver, "node", NODE)
            await publish_inventory(Client(on_the_node), driver.name, namespace, NODE, {"units": "1"})
            transport = account(world.api, driver, "controller")
            choices = ClassicControllerOptions(
                elect=True, namespace=namespace, inventory=True, retry_delay=ClassicRetryDelay(0.01, 0.1)
            )
            service = ClassicControllerService(Client(transport), Units(), choices)
            task = asyncio.create_task(service.run())
            for name in ("one", "two"):
                made = classic_claim(name, "Immediate")
                made["spec"]["resourceClassName"] = driver.name
                await world.api.create(made, CLAIMS)
            await wait_until(lambda: _phase(world, "one"), lambda phase: phase == "Allocated")
            assert await _phase(world, "two") == "Pending"
            await wait_until(lambda: world.api.names(path("events")))
            await publish_inventory(
                Client(on_the_node), driver.name, namespace, NODE, {"units": "2"}
            )  # more is found
            await wait_until(lambda: _phase(world, "two"), lambda phase: phase == "Allocated")
            task.cancel()
            await asyncio.wait([task])
            used = set(asked_for(transport.requests))
            unused = granted(documents, "controller") - used
            # The other spelling of events, and counting them, come only with older servers and repetition.
            events = {
                (verb, group, "events") for verb in ("create", "patch") for group in ("", "events.k8s.io")
            }
            assert unused <= events
            assert used <= granted(documents, "controller")
            assert set(asked_for(on_the_node.requests)) <= granted(documents, "node")
            webhook = account(world.api, driver, "webhook")
            assert await make_class_driver_lookup(Client(webhook))(driver.name) == driver.name
            assert await make_class_driver_lookup(Client(webhook))("nothing") is None
            tls = WebhookTls(namespace, f"{namespace}-webhook", configuration=f"{namespace}-parameters")
            for expired in (False, True):
                await WebhookCertificates(Client(webhook), tls, build_silent_logger()).write(tmp_path / "pem")
                if not expired:
                    secret = path("secrets", f"{namespace}-webhook-tls", namespace=namespace)
                    await world.api.patch(secret, {"data": {"tls.crt": ""}})
            assert set(asked_for(webhook.requests)) == granted(documents, "webhook")

    asyncio.run(scenario())


async def _phase(world: Any, name: str) -> str:
    claim = await world.api.get(f"{CLAIMS}/{name}")
    return str(claim["status"]["phase"])


@pytest.mark.req("K3063-150")
def test_only_the_driver_can_write_the_inventory_of_nodes() -> None:
    async def scenario() -> None:
        async with serve_for_drivers() as world:
            driver = Fpga()
            namespace = shorten_driver_name(driver.name)
            await applied(world.admin, driver)
            node_part = Client(account(world.api, driver, "node", NODE))
            await publish_inventory(node_part, driver.name, namespace, NODE, {"units": "1"})
            strangers = [
                Client(InProcessTransport(world.api.app, "jane", ("system:authenticated",))),
                Client(account(world.api, driver, "webhook")),
                Client(account(world.api, driver, "controller")),  # reads, and does not write
                Client(
                    InProcessTransport(
                        world.api.app, f"system:node:{NODE}", ("system:nodes", "system:authenticated")
                    )
                ),
            ]
            for stranger in strangers:
                with pytest.raises(ForbiddenError):
                    await publish_inventory(stranger, driver.name, namespace, NODE, {"units": "9"})
            found = await world.admin.get(CONFIG_MAP, NODE, namespace)
            assert found["data"] == {"units": "1"}
            assert found["metadata"]["ownerReferences"][0]["kind"] == "Node"
            before = found["metadata"]["resourceVersion"]
            await publish_inventory(node_part, driver.name, namespace, NODE, {"units": "1"})
            await publish_inventory(node_part, driver.name, namespace, NODE, {"spare": "1"})
            found = await world.admin.get(get_kind("ConfigMap"), NODE, namespace)
            assert found["data"] == {"spare": "1"}
            assert int(found["metadata"]["resourceVersion"]) > int(before)

    asyncio.run(scenario())
