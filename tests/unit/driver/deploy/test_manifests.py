"""Manifests of drivers: the documents are valid, and their rights are the ones that the kit uses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pytest
import yaml

from dray.api.codec import decode_document
from dray.api.strategies.defaults import apply_defaults
from dray.api.validation import validate_create
from dray.cel.syntax.parser import parse
from dray.cli.commands.manifests.lint import lint_files
from dray.cli.input.manifest_files import find_input_files
from dray.client.client import Client
from dray.client.errors import ForbiddenError
from dray.client.object_refs import get_kind
from dray.client.transport import TransportRequest
from dray.client.webhook_certificates import WebhookCertificates, WebhookTls
from dray.driver import Claim, ClassicDriver, DeviceStatus, Driver, Ready, device
from dray.driver.classic.controller import (
    ClassicAllocation,
    ClassicClaimRequest,
    ClassicController,
    HeldClaim,
    NoAllocationAvailable,
)
from dray.driver.classic.controller_service import ClassicControllerOptions, ClassicControllerService
from dray.driver.classic.inventory import CONFIG_MAP, publish_inventory
from dray.driver.classic.retries import ClassicRetryDelay
from dray.driver.deploy.manifests import build_manifests
from dray.driver.deploy.objects import DeploymentTarget, shorten_driver_name
from dray.driver.service.cluster_commands import make_class_driver_lookup
from dray.driver.service.program import build_command
from dray.errors import InputError
from dray.gates import GateSet
from dray.telemetry.logs import build_silent_logger
from dray.values.names import check_dns_label
from tests.contract.api import path
from tests.contract.classic import CLAIMS, classic_claim
from tests.support.in_process_transport import InProcessTransport
from tests.unit.driver.driver_node import DRIVER, NODE, DriverNode, Gpu, open_driver_node
from tests.unit.driver.driver_server import InterceptedTransport, serve_for_drivers, wait_until

TARGET = DeploymentTarget("registry.example.com/driver:1")


class Settings(msgspec.Struct):
    """What users may write."""

    size: int = 1


class Told(Gpu):
    """Has a schema and reports about devices."""

    parameters = Settings

    def prepare(self, claim: Claim) -> Iterable[Ready]:
        return [Ready(got, status=DeviceStatus(data={"ok": True})) for got in claim.devices]


class Units(ClassicController):
    """Allocates from the inventory of the nodes."""

    name = "fpga.example.com"

    def allocate(
        self, need: ClassicClaimRequest, node: str | None, held: Sequence[HeldClaim]
    ) -> ClassicAllocation | NoAllocationAvailable:
        assert self.inventory is not None
        taken = [each.node for each in held]
        for name in [node] if node else self.inventory.list_nodes():
            if taken.count(name) < int(self.inventory.get(name).get("units", "0")):
                return ClassicAllocation(name)
        return NoAllocationAvailable("nothing is left")


class Fpga(ClassicDriver):
    """A classic driver with a controller and a schema."""

    name = "fpga.example.com"
    parameters = Settings
    controller = Units


class Plain(Driver):
    """Nothing but devices."""

    name = "a" * 20 + ".example.com"


DRIVERS: list[Driver] = [Told(), Fpga(), Plain()]


@pytest.mark.req("K3063-045")
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: type(driver).__name__)
def test_every_document_is_valid_and_lint_finds_nothing(driver: Driver, tmp_path: Path) -> None:
    documents = build_manifests(driver, TARGET)
    for document in documents:
        decoded = decode_document(document)
        assert not decoded.unknown_fields, document["kind"]
        if not decoded.kind.open:
            assert validate_create(apply_defaults(decoded.object, now="2026-01-01T00:00:00Z")) == []
    places = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in documents
    ]
    assert len(set(places)) == len(places)
    file = tmp_path / "manifests.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    tally = lint_files(find_input_files([str(file)]), GateSet.from_defaults(), complete=False)
    assert [each for each in tally.findings if each.rule != "not-checked"] == []


def test_a_driver_has_the_parts_it_needs_and_no_others() -> None:
    kinds = {
        type(each).__name__: [made["kind"] for made in build_manifests(each, TARGET)] for each in DRIVERS
    }
    assert kinds["Plain"] == [
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "DaemonSet",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "DeviceClass",
    ]
    account = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]
    webhook = [*account, "Deployment", "Service", "ValidatingWebhookConfiguration"]
    assert kinds["Told"] == [*kinds["Plain"], *webhook]
    assert kinds["Fpga"].count("Deployment") == 2
    assert "ResourceClass" in kinds["Fpga"]
    assert "ValidatingAdmissionPolicy" not in kinds["Fpga"]


def test_the_pod_on_the_node_has_its_directories_its_name_and_few_privileges() -> None:
    (made,) = (each for each in build_manifests(Told(), TARGET) if each["kind"] == "DaemonSet")
    pod = made["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert [each["hostPath"]["path"] for each in pod["volumes"]] == [
        "/var/lib/kubelet/plugins",
        "/var/lib/kubelet/plugins_registry",
        "/var/run/cdi",
    ]
    fields = {
        each["name"]: each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        for each in container["env"]
    }
    assert (fields["NODE_NAME"], fields["POD_UID"]) == ("spec.nodeName", "metadata.uid")
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert "privileged" not in container["securityContext"]
    assert made["spec"]["selector"]["matchLabels"] == made["spec"]["template"]["metadata"]["labels"]


def test_the_directories_of_the_kubelet_and_of_cdi_files_can_be_elsewhere() -> None:
    target = replace(TARGET, kubelet_dir=PurePosixPath("/data/kubelet"), cdi_dir=PurePosixPath("/etc/cdi"))
    (made,) = (each for each in build_manifests(Told(), target) if each["kind"] == "DaemonSet")
    pod = made["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    places = ["/data/kubelet/plugins", "/data/kubelet/plugins_registry", "/etc/cdi"]
    assert [each["hostPath"]["path"] for each in pod["volumes"]] == places
    assert [each["mountPath"] for each in container["volumeMounts"]] == places, "sockets have the same paths"
    assert container["args"][2::2] == places


@pytest.mark.parametrize("issues", [True, False])
def test_the_certificate_of_the_webhook_is_issued_by_itself_or_by_the_cluster(issues: bool) -> None:
    documents = build_manifests(Told(), replace(TARGET, issues_certificate=issues))
    (made,) = (each for each in documents if each["kind"] == "Deployment")
    (volume,) = made["spec"]["template"]["spec"]["volumes"]
    assert ("secret" in volume) is not issues
    rights = granted(documents, "webhook")
    assert (("patch", "", "secrets") in rights) is issues
    assert (("patch", "admissionregistration.k8s.io", "validatingwebhookconfigurations") in rights) is issues


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: type(driver).__name__)
def test_the_arguments_of_pods_are_commands_of_the_program(driver: Driver, tmp_path: Path) -> None:
    program = build_command(lambda: driver)
    pods = [each for each in build_manifests(driver, TARGET) if each["kind"] in ("DaemonSet", "Deployment")]
    for made in pods:
        first, *rest = made["spec"]["template"]["spec"]["containers"][0]["args"]
        rest = [str(tmp_path) if word == "/etc/webhook" else word for word in rest]
        program.commands[first].make_context(first, rest)


def test_expressions_of_the_policy_can_be_parsed() -> None:
    (policy,) = (
        each for each in build_manifests(Told(), TARGET) if each["kind"] == "ValidatingAdmissionPolicy"
    )
    spec = policy["spec"]
    for part in (*spec["matchConditions"], *spec["variables"], *spec["validations"]):
        parse(part["expression"])


@pytest.mark.parametrize(
    "name", ["gpu.example.com", "g-pu.example.com", "g.pu.example.com", "1.example.com", "x" * 63]
)
def test_short_names_are_labels_that_begin_with_a_letter(name: str) -> None:
    assert not check_dns_label(f"{shorten_driver_name(name)}-webhook-tls")
    assert shorten_driver_name(name)[0].isalpha()


def test_short_names_of_different_drivers_differ() -> None:
    names = ["a.b.example.com", "a-b.example.com", "a.b-example.com"]
    assert len({shorten_driver_name(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    ("name", "image", "namespace"),
    [("", "i:1", ""), ("A_b", "i:1", ""), (DRIVER, "", ""), (DRIVER, "i:1", "a.b")],
)
def test_what_cannot_be_deployed_is_refused(name: str, image: str, namespace: str) -> None:
    driver = Driver()
    driver.__class__ = type("Odd", (Driver,), {"name": name})
    with pytest.raises(InputError):
        build_manifests(driver, DeploymentTarget(image, namespace))


@pytest.mark.parametrize("directory", ["kubelet", "/data/../kubelet"])
def test_a_directory_of_the_nodes_has_an_absolute_path(directory: str) -> None:
    with pytest.raises(InputError, match="absolute path"):
        build_manifests(Told(), replace(TARGET, kubelet_dir=PurePosixPath(directory)))


# --- rights ---


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


def granted(documents: Sequence[dict[str, Any]], part: str) -> set[tuple[str, str, str]]:
    """The rights that the roles of a part give."""
    return {
        (verb, group, resource)
        for made in documents
        if made["kind"] in ("ClusterRole", "Role") and made["metadata"]["name"].endswith(f"-{part}")
        for rule in made["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


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
