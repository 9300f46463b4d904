"""Manifests of drivers: the documents are valid, and complete."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest
import yaml

from dray.api.codec import decode_document
from dray.api.strategies.defaults import apply_defaults
from dray.api.validation import validate_create
from dray.cel.syntax.parser import parse
from dray.cli.commands.manifests.lint import lint_files
from dray.cli.input.manifest_files import find_input_files
from dray.driver import Driver
from dray.driver.deploy.manifests import build_manifests
from dray.driver.deploy.objects import DeploymentTarget, shorten_driver_name
from dray.driver.service.program import build_command
from dray.errors import InputError
from dray.gates import GateSet
from dray.values.names import check_dns_label
from tests.unit.driver.deploy.deployed_drivers import TARGET, Fpga, Plain, Told, granted
from tests.unit.driver.driver_node import DRIVER

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
