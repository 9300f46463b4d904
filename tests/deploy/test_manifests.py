"""The kustomize base and the chart are the same objects, well formed, with arguments that dray knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import dray
from dray.cli.app import dray as root_command
from dray.cli.app import run
from tests.deploy.rendering import (
    CHART,
    DEPLOY,
    list_pod_specs,
    normalise,
    read_base,
    read_manifests,
    render_chart,
    render_kustomization,
    run_helm,
)
from tests.outside import ROOT
from tools.chart_values import iter_values, render_readme

EVERYTHING = (
    "--set=controller.enabled=true",
    "--set=monitoring.podMonitor.enabled=true",
    "--set=monitoring.rules.enabled=true",
    "--set=monitoring.dashboard.enabled=true",
)
PLAIN = sorted(path.name for path in DEPLOY.glob("*.yaml") if path.name != "kustomization.yaml")


# --- the same objects ---


def test_the_chart_renders_the_objects_of_the_base():
    assert normalise(render_chart()) == normalise(read_base())


def test_the_chart_with_the_controller_renders_its_manifest_too():
    rendered = normalise(render_chart("--set=controller.enabled=true"))
    assert rendered == normalise([*read_base(), *read_manifests("controller.yaml")])


def test_kubectl_renders_the_base_as_it_is_written():
    assert normalise(render_kustomization(DEPLOY)) == normalise(read_base())


def test_the_example_overlay_changes_image_and_memory():
    changed = normalise(render_kustomization(ROOT / "examples" / "overlay"))
    assert changed.keys() == normalise(read_base()).keys()
    for spec in list_pod_specs(changed.values()):
        (container,) = spec["containers"]
        assert container["image"] == "registry.example.com/platform/dray:0.1.0"
    scheduler = changed["Deployment", "kube-system", "dray-scheduler"]["spec"]["template"]["spec"]
    assert scheduler["containers"][0]["resources"]["requests"]["memory"] == "2Gi"


# --- the chart ---


@pytest.mark.parametrize("options", [(), EVERYTHING], ids=["defaults", "everything"])
def test_helm_lint_finds_nothing(options: tuple[str, ...]):
    done = run_helm("lint", "--strict", str(CHART), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("--set=scheduler.replicas=0", "scheduler.replicas"),
        ("--set=scheduler.schedulerName=default-scheduler", "scheduler.schedulerName"),
        ("--set=shceduler.enabled=true", "shceduler"),
        ("--set=image.tag=", "image.tag"),
        ("--set=scheduler.extraArgs={qps}", "scheduler.extraArgs"),
    ],
)
def test_a_wrong_value_is_refused_by_name(option: str, named: str):
    done = run_helm("template", str(CHART), "--kube-version", "1.37.0", option)
    assert done.returncode != 0
    assert named.replace(".", "/") in done.stderr.replace(".", "/")


def test_a_release_in_another_namespace_keeps_its_leases_in_kube_system():
    done = run_helm("template", str(CHART), "--namespace", "devices", "--kube-version", "1.37.0", *EVERYTHING)
    objects = [each for each in yaml.safe_load_all(done.stdout) if each]
    places = {(each["kind"], each["metadata"].get("namespace")) for each in objects}
    assert ("Deployment", "devices") in places
    assert ("Role", "kube-system") in places
    subjects = [subject for each in objects for subject in each.get("subjects", [])]
    assert {subject["namespace"] for subject in subjects if subject["kind"] == "ServiceAccount"} == {
        "devices"
    }


def test_values_reach_the_pods():
    options = (
        "--set=image.repository=r.example.com/dray,image.tag=0.9.1",
        "--set=imagePullSecrets[0].name=pull",
        "--set=priorityClassName=",
        "--set=scheduler.schedulerName=gpu",
        "--set=scheduler.extraArgs={--qps=5}",
        "--set=scheduler.nodeSelector.pool=infra",
        "--set=scheduler.tolerations[0].operator=Exists",
    )
    spec = normalise(render_chart(*options))["Deployment", "kube-system", "dray-scheduler"]["spec"]
    pod = spec["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert "priorityClassName" not in pod
    assert pod["nodeSelector"] == {"pool": "infra"}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    (container,) = pod["containers"]
    assert container["image"] == "r.example.com/dray:0.9.1"
    assert container["args"] == ["scheduler", "--scheduler-name=gpu", "--metrics-address=:10259", "--qps=5"]


def test_every_value_is_documented_and_in_the_schema():
    text = (CHART / "values.yaml").read_text("utf-8")
    documented = {name for name, _, _ in iter_values(text, yaml.safe_load(text))}
    assert documented == set(_list_leaves(yaml.safe_load(text)))
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    for name in documented:
        part = schema
        for key in name.split("."):
            part = part["properties"][key]


def _list_leaves(values: dict[str, Any], prefix: str = "") -> list[str]:
    """Values by path; `resources`, `labels` and their like are values as a whole."""
    whole = ("resources", "labels", "nodeSelector", "affinity")
    found = []
    for key, value in values.items():
        inner = isinstance(value, dict) and key not in whole
        found += _list_leaves(value, f"{prefix}{key}.") if inner else [f"{prefix}{key}"]
    return found


def test_the_readme_of_the_chart_is_up_to_date():
    assert (CHART / "README.md").read_text("utf-8") == render_readme(), "run `make reference`"


def test_the_chart_has_the_version_of_dray():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["appVersion"] == dray.__version__
    assert chart["version"] == dray.__version__.replace(".dev", "-dev.")


@pytest.mark.parametrize("path", sorted((CHART / "files").iterdir()), ids=lambda path: path.name)
def test_files_of_the_chart_are_those_beside_it(path: Path):
    assert path.is_symlink()
    assert DEPLOY in path.resolve(strict=True).parents


# --- well formed ---


@pytest.mark.parametrize("name", PLAIN)
def test_dray_lint_finds_nothing(name: str, capsys: pytest.CaptureFixture[str]):
    assert run(["lint", "--strict", str(DEPLOY / name)]) == 0, capsys.readouterr().out


def test_pods_have_no_rights_on_their_node():
    for spec in list_pod_specs([*read_base(), *read_manifests("controller.yaml")]):
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}
            assert "limits" not in container["resources"] or "cpu" not in container["resources"]["limits"]


def test_the_arguments_of_containers_are_arguments_of_dray():
    for spec in list_pod_specs([*read_base(), *read_manifests("controller.yaml")]):
        for container in spec["containers"]:
            parse_arguments(container["args"])


def parse_arguments(arguments: list[str]) -> None:
    """Parse as the command line does, without running; raises `click.UsageError`."""
    command: click.Command = root_command
    context, rest = click.Context(command), list(arguments)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command, context = found, click.Context(found, info_name=name, parent=context)
    command.parse_args(context, rest)
