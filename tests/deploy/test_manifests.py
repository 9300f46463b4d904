"""The kustomize base and the chart are the same objects, well formed, with arguments that dray knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import dray
from dray.cli.app import run
from tests.deploy.rendering import (
    CHART,
    DEPLOY,
    NODE_TOOLS,
    list_manifest_names,
    list_pod_specs,
    normalise,
    parse_arguments,
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
    "--set=nodeTools.enabled=true",
    "--set=monitoring.podMonitor.enabled=true",
    "--set=monitoring.rules.enabled=true",
    "--set=monitoring.dashboard.enabled=true",
)


# --- the same objects ---


def test_the_chart_renders_the_objects_of_the_base():
    assert normalise(render_chart()) == normalise(read_base())


@pytest.mark.parametrize(
    ("value", "name"), [("controller", "controller.yaml"), ("nodeTools", NODE_TOOLS)], ids=str
)
def test_the_chart_with_more_renders_that_manifest_too(value: str, name: str):
    rendered = normalise(render_chart(f"--set={value}.enabled=true"))
    assert rendered == normalise([*read_base(), *read_manifests(name)])


def test_the_chart_without_the_guard_has_nothing_of_it():
    rendered = normalise(render_chart("--set=guard.enabled=false"))
    assert rendered == normalise([*read_manifests("scheduler.yaml"), *read_manifests("viewer.yaml")])


def test_the_chart_without_the_role_of_viewers_has_the_rest():
    rendered = normalise(render_chart("--set=viewer.enabled=false"))
    assert rendered.keys() == normalise(read_base()).keys() - normalise(read_manifests("viewer.yaml")).keys()


def test_kubectl_renders_the_base_as_it_is_written():
    assert normalise(render_kustomization(DEPLOY)) == normalise(read_base())


def test_the_example_overlay_changes_image_and_memory_and_adds_the_node_tools():
    changed = normalise(render_kustomization(ROOT / "examples" / "overlay"))
    assert changed.keys() == normalise([*read_base(), *read_manifests(NODE_TOOLS)]).keys()
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
        ("--set=guard.replicas=0", "guard.replicas"),
        ("--set=nodeTools.kubeletDir=kubelet", "nodeTools.kubeletDir"),
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
    (service,) = [each for each in objects if each["kind"] == "Service"]
    (hook,) = [each for each in objects if each["kind"] == "ValidatingWebhookConfiguration"]
    assert hook["webhooks"][0]["clientConfig"]["service"]["namespace"] == service["metadata"]["namespace"]
    (guard,) = [
        each for each in objects if each["kind"] == "Deployment" and "guard" in each["metadata"]["name"]
    ]
    assert "--name=dray-guard.devices.svc" in guard["spec"]["template"]["spec"]["containers"][0]["args"]


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


def test_the_chart_installs_the_alerts_and_the_board_as_they_are():
    """Both have braces of their own, which are not those of Helm."""
    rendered = {each["kind"]: each for each in render_chart(*EVERYTHING)}
    monitoring = DEPLOY / "monitoring"
    rules = yaml.safe_load((monitoring / "prometheus-rules.yaml").read_text("utf-8"))
    assert rendered["PrometheusRule"]["spec"] == rules
    board = json.loads((monitoring / "grafana-dashboard.json").read_text("utf-8"))
    assert json.loads(rendered["ConfigMap"]["data"]["dray.json"]) == board


# --- well formed ---


@pytest.mark.parametrize("name", list_manifest_names())
def test_dray_lint_finds_nothing(name: str, capsys: pytest.CaptureFixture[str]):
    assert run(["lint", "--strict", str(DEPLOY / name)]) == 0, capsys.readouterr().out


def read_all() -> list[dict[str, Any]]:
    return [each for name in list_manifest_names() for each in read_manifests(name)]


def test_pods_have_no_rights_on_their_node():
    for spec in list_pod_specs(read_all()):
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}
            assert "limits" not in container["resources"] or "cpu" not in container["resources"]["limits"]


def test_only_the_node_tools_are_root_and_they_only_read():
    """Sockets of a kubelet belong to root; secrets of pods are below its directory."""
    (tools,) = [
        spec
        for spec in list_pod_specs(read_all())
        if spec["containers"][0]["securityContext"]["runAsUser"] == 0
    ]
    assert tools["automountServiceAccountToken"] is False
    (container,) = tools["containers"]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in tools["volumes"]}
    for path, mount in mounts.items():
        on_host = "hostPath" in volumes[mount["name"]]
        assert not on_host or mount["readOnly"] is True
        assert not on_host or volumes[mount["name"]]["hostPath"]["path"] == path, (
            "drivers name paths of the host"
        )
    assert "emptyDir" in volumes[mounts["/var/lib/kubelet/pods"]["name"]]


def test_the_guard_cannot_lock_itself_out():
    """What it needs to start and to write does not pass through its own webhook."""
    objects = read_manifests("guard.yaml")
    (hook,) = [each for each in objects if each["kind"] == "ValidatingWebhookConfiguration"]
    (webhook,) = hook["webhooks"]
    assert webhook["failurePolicy"] == "Fail"
    assert [(rule["resources"], rule["operations"]) for rule in webhook["rules"]] == [
        (["resourceclaims/status"], ["UPDATE"])
    ]
    assert "namespaceSelector" not in webhook, "a hole through which devices are allocated twice"
    for spec in list_pod_specs(objects):
        assert "resourceClaims" not in spec
    rules = [rule for each in objects if each["kind"].endswith("Role") for rule in each["rules"]]
    assert all("resourceclaims/status" not in rule["resources"] for rule in rules)


def test_the_guard_survives_the_loss_of_a_node():
    objects = normalise(read_manifests("guard.yaml"))
    deployment = objects["Deployment", "kube-system", "dray-guard"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["replicas"] == 2
    (term,) = deployment["template"]["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    budget = objects["PodDisruptionBudget", "kube-system", "dray-guard"]["spec"]
    service = objects["Service", "kube-system", "dray-guard"]["spec"]
    selectors = [term["podAffinityTerm"]["labelSelector"]["matchLabels"], budget["selector"]["matchLabels"]]
    assert [*selectors, service["selector"]] == [labels] * 3
    assert budget["minAvailable"] == 1


def test_the_arguments_of_containers_are_arguments_of_dray():
    for spec in list_pod_specs(read_all()):
        for container in spec["containers"]:
            parse_arguments(container["args"])


def test_every_pod_with_metrics_is_monitored():
    (monitor,) = [each for each in render_chart(*EVERYTHING) if each["kind"] == "PodMonitor"]
    (selected,) = monitor["spec"]["selector"]["matchExpressions"]
    labels = {
        each["spec"]["template"]["metadata"]["labels"]["app"]
        for each in read_all()
        if each["kind"] in ("Deployment", "DaemonSet")
    }
    assert set(selected["values"]) == labels
