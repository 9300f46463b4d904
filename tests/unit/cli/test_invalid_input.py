"""Files are validated as an API server would: invalid objects are named and never placed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dray.gates import GATES
from tests.unit.cli.commands.manifests.test_allocate import GPU, SMALL
from tests.unit.cli.conftest import Typed
from tests.unit.simulation.cluster_text import allocated, claim, device_class, node, pod, slice_of, template

HELD = allocated("gpu.example.com", "node-a", "gpu-0", "node-a")
NEGATIVE = claim("bad", "gpu", count=-1)
WRONG_COUNT = "spec.devices.requests[0].exactly.count: Invalid value: -1"


def _invalid(text: str) -> list[tuple[str, str]]:
    return [(each["kind"], each["name"]) for each in json.loads(text)["invalid"]]


def test_an_invalid_claim_is_left_out_and_named_and_the_others_are_placed(typed: Typed, desk: Path) -> None:
    (desk / "c.yaml").write_text(SMALL + claim("good", "gpu") + NEGATIVE)
    ended = typed("allocate", "-f", "c.yaml")
    assert ended.code == 1
    line = next(line for line in ended.err.splitlines() if "ResourceClaim default/bad" in line)
    assert line.startswith("dray: c.yaml:")
    assert f"is invalid and left out: {WRONG_COUNT}" in line
    assert "default/good" in ended.out
    assert f"not placed: claim default/bad: invalid: {WRONG_COUNT}" in ended.out
    assert "placed 1 of 2" in ended.out


@pytest.mark.parametrize("command", ["allocate", "explain"])
def test_input_in_which_nothing_that_waits_is_valid_is_broken(typed: Typed, desk: Path, command: str) -> None:
    (desk / "c.yaml").write_text(SMALL + NEGATIVE)
    ended = typed(command, "-f", "c.yaml")
    assert ended.code == 2
    assert WRONG_COUNT in ended.out


@pytest.mark.parametrize(
    "arguments",
    [("allocate", "-f", "c.yaml", "--claim", "bad"), ("explain", "-f", "c.yaml", "claim/bad")],
)
def test_what_is_asked_about_must_be_valid(typed: Typed, desk: Path, arguments: tuple[str, ...]) -> None:
    (desk / "c.yaml").write_text(SMALL + claim("good", "gpu") + NEGATIVE)
    ended = typed(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[-1].startswith(f"dray: claim `default/bad` is invalid: {WRONG_COUNT}")


def test_a_pod_that_is_asked_about_must_be_valid(typed: Typed, desk: Path) -> None:
    twice = pod("x", claims="a").replace("[{name: a", "[{name: a, resourceClaimTemplateName: t")
    (desk / "c.yaml").write_text(SMALL + claim("a", "gpu") + twice)
    ended = typed("allocate", "-f", "c.yaml", "--pod", "x")
    assert (ended.code, ended.out) == (2, "")
    assert "pod `default/x` is invalid: spec.resourceClaims[0]" in ended.err


@pytest.mark.parametrize("command", ["allocate", "explain", "verify"])
def test_strict_takes_no_invalid_object(typed: Typed, desk: Path, command: str) -> None:
    (desk / "c.yaml").write_text(SMALL + claim("good", "gpu") + slice_of("Node_Z", "x"))
    assert typed(command, "-f", "c.yaml").code == 0
    ended = typed(command, "-f", "c.yaml", "--strict")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[-1] == "dray: 1 invalid object, and `--strict` allows none"


def test_an_invalid_slice_lends_no_devices(typed: Typed, desk: Path) -> None:
    broken = slice_of("node-a", "gpu-0", memory="-10")
    (desk / "c.yaml").write_text(node("node-a") + GPU + broken + claim("c", "gpu"))
    ended = typed("allocate", "-f", "c.yaml", "-o", "json")
    assert ended.code == 1
    assert _invalid(ended.out) == [("ResourceSlice", "node-a-gpu.example.com")]
    (problem,) = json.loads(ended.out)["invalid"][0]["problems"]
    assert problem["field"] == "spec.devices[0].capacity[memory].value"
    assert problem["place"].startswith("c.yaml:")


def test_a_pool_without_the_accounts_of_held_devices_lends_nothing(typed: Typed, desk: Path) -> None:
    one = slice_of("node-a", "gpu-0", memory="-10")
    other = slice_of("node-a", "gpu-1").replace("name: node-a-gpu", "name: more-gpu")
    (desk / "c.yaml").write_text(
        node("node-a") + GPU + one + other + claim("had", "gpu", status=HELD) + claim("c", "gpu")
    )
    ended = typed("allocate", "-f", "c.yaml")
    assert ended.code == 1
    assert "pool `gpu.example.com/node-a` is left out: claims hold devices of its invalid slice" in ended.err


def test_an_invalid_class_is_why_its_claims_find_nothing(typed: Typed, desk: Path) -> None:
    broken = device_class("gpu", "device.drivers")
    (desk / "c.yaml").write_text(node("node-a") + broken + slice_of("node-a", "gpu-0") + claim("c", "gpu"))
    ended = typed("explain", "-f", "c.yaml", "claim/c")
    assert ended.code == 1
    assert "DeviceClass `gpu` is invalid: spec.selectors[0].cel.expression" in ended.out


def test_a_template_that_makes_invalid_claims_is_named(typed: Typed, desk: Path) -> None:
    broken = template("bad", "gpu").replace("deviceClassName: gpu", "deviceClassName: gpu, count: -1")
    (desk / "c.yaml").write_text(SMALL + broken + pod("x", templates="bad"))
    ended = typed("allocate", "-f", "c.yaml")
    assert ended.code == 1
    assert "ResourceClaimTemplate default/bad is invalid and left out: spec.spec.devices" in ended.err
    assert "entry `bad`: ResourceClaimTemplate `default/bad` is invalid" in ended.out


@pytest.mark.parametrize("count", [1, -1])
def test_devices_of_an_invalid_claim_stay_in_use(typed: Typed, desk: Path, count: int) -> None:
    (desk / "c.yaml").write_text(SMALL + claim("had", "gpu", count=count, status=HELD) + claim("c", "gpu"))
    ended = typed("allocate", "-f", "c.yaml")
    assert ended.code == 1
    assert "not placed: claim default/c" in ended.out
    assert ("had is invalid, but the devices it holds stay in use" in ended.err) is (count < 0)


SHARED = (
    node("node-a")
    + GPU
    + slice_of("node-a", "gpu-0", memory="10Gi").replace(
        "{name: gpu-0,", "{name: gpu-0, allowMultipleAllocations: true,"
    )
)


@pytest.mark.parametrize(
    ("extra", "field"),
    [
        ("consumedCapacity: {memory: -999Gi}, shareID: 8be7ef3c-1111-4222-8333-0123456789ab", "memory"),
        ("consumedCapacity: {memory: 1Gi}, shareID: nonsense", "shareID"),
        ("adminAccess: true", "adminAccess"),
    ],
)
def test_amounts_in_a_broken_status_are_not_believed(
    typed: Typed, desk: Path, extra: str, field: str
) -> None:
    status = HELD.replace("device: gpu-0}", f"device: gpu-0, {extra}}}")
    (desk / "c.yaml").write_text(SHARED + claim("had", "gpu", status=status) + claim("c", "gpu"))
    ended = typed("allocate", "-f", "c.yaml")
    assert ended.code == 1
    assert "not placed: claim default/c" in ended.out
    assert field in ended.err
    checked = typed("verify", "-f", "c.yaml")
    assert checked.code == 1
    assert checked.out.splitlines()[0].startswith("claim default/had: status.allocation.devices.results[0]")
    assert checked.out.splitlines()[0].endswith("[Invalid]")


def test_a_pod_does_not_run_with_an_invalid_claim(typed: Typed, desk: Path) -> None:
    (desk / "c.yaml").write_text(SMALL + NEGATIVE + pod("x", claims="bad"))
    ended = typed("explain", "-f", "c.yaml", "pod/x")
    assert ended.code == 1
    assert f"claim `default/bad` is invalid: {WRONG_COUNT}" in ended.out


def test_nodes_are_not_made_up_when_those_given_are_invalid(typed: Typed, desk: Path) -> None:
    (desk / "c.yaml").write_text(node("Node_A") + GPU + slice_of("node-a", "gpu-0") + claim("c", "gpu"))
    ended = typed("allocate", "-f", "c.yaml")
    assert ended.code == 1
    assert "no node is left: all that are given are invalid" in ended.err
    assert "not placed: claim default/c: no valid node is among the manifests" in ended.out


ADMIN = claim("spy", "gpu").replace("count: 1", "count: 1, adminAccess: true")
SPACE = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: default\n  labels: {%s}\n---\n"


@pytest.mark.parametrize(
    ("spaces", "code", "said"),
    [
        ("", 0, "whether admin access is allowed in namespace `default` is not in the files"),
        (SPACE % "", 2, "requires the `resource.kubernetes.io/admin-access: true` label"),
        (SPACE % "resource.kubernetes.io/admin-access: 'true'", 0, ""),
    ],
)
def test_admin_access_is_for_namespaces_with_the_label(
    typed: Typed, desk: Path, spaces: str, code: int, said: str
) -> None:
    (desk / "c.yaml").write_text(SMALL + spaces + ADMIN)
    ended = typed("allocate", "-f", "c.yaml")
    assert ended.code == code
    assert said in ended.err


# --- what Kubernetes lets through ---

POLICY = "capacity: {m: {value: %s, requestPolicy: %s}}, allowMultipleAllocations: true"
ODD_DEVICES = {
    "attribute name": "attributes: {x.io/a/b: {int: 1}}",
    "default above capacity": POLICY % ("10", "{default: 11}"),
    "negative default": POLICY % ("10", "{default: -1}"),
    "negative min": POLICY % ("10", "{default: 1, validRange: {min: -4}}"),
    "default above capacity, range without max": POLICY % ("10", "{default: 40, validRange: {min: 1}}"),
    "negative valid value": POLICY % ("10", "{default: 1, validValues: [-1, 1]}"),
    "negative capacity": "capacity: {m: {value: -10}}",
    "step of nothing": POLICY % ("10", "{default: 1, validRange: {min: 1, step: 0}}"),
}
ODD_REQUESTS = {
    "negative amount": "exactly: {deviceClassName: gpu, capacity: {requests: {m: -5}}}",
    "name of an amount": "exactly: {deviceClassName: gpu, capacity: {requests: {'!!bad name!!': 5}}}",
    "neither": "",
    "both": "exactly: {deviceClassName: gpu}\n      firstAvailable: [{name: a, deviceClassName: gpu}]",
    "count beyond all bounds": "exactly: {deviceClassName: gpu, count: 1099511627776}",
}


@pytest.mark.parametrize("odd", ODD_DEVICES.values(), ids=ODD_DEVICES.keys())
def test_odd_devices_are_left_out(typed: Typed, desk: Path, odd: str) -> None:
    cluster = (
        node("node-a") + GPU + slice_of("node-a", "gpu-0").replace("{name: gpu-0}", f"{{name: gpu-0, {odd}}}")
    )
    (desk / "c.yaml").write_text(cluster + claim("c", "gpu"))
    ended = typed("allocate", "-f", "c.yaml", "-o", "json")
    assert ended.code == 1
    assert _invalid(ended.out) == [("ResourceSlice", "node-a-gpu.example.com")]


@pytest.mark.parametrize("odd", ODD_REQUESTS.values(), ids=ODD_REQUESTS.keys())
def test_odd_requests_are_refused(typed: Typed, desk: Path, odd: str) -> None:
    asked = claim("c", "gpu").replace("exactly: {deviceClassName: gpu, count: 1}", odd)
    (desk / "c.yaml").write_text(SMALL + asked)
    ended = typed("allocate", "-f", "c.yaml", "-o", "json")
    assert ended.code == 2
    assert _invalid(ended.out) == [("ResourceClaim", "c")]


def test_a_constraint_is_of_one_kind(typed: Typed, desk: Path) -> None:
    both = "    constraints: [{matchAttribute: a.b/c, distinctAttribute: a.b/c}]\n    requests:\n"
    (desk / "c.yaml").write_text(SMALL + claim("c", "gpu").replace("    requests:\n", both))
    ended = typed("allocate", "-f", "c.yaml", "-o", "json")
    assert (ended.code, _invalid(ended.out)) == (2, [("ResourceClaim", "c")])


# --- gates ---

TOLERANT = claim("c", "gpu").replace("count: 1", "count: 1, tolerations: [{key: x, operator: Exists}]")
NO_TAINTS = ("--feature-gates", "DRADeviceTaints=false")


@pytest.mark.parametrize("command", ["allocate", "explain", "verify"])
def test_fields_behind_closed_gates_are_dropped_with_the_warning_of_the_server(
    typed: Typed, desk: Path, command: str
) -> None:
    (desk / "c.yaml").write_text(SMALL + TOLERANT)
    ended = typed(command, "-f", "c.yaml", *NO_TAINTS, "-o", "json")
    assert ended.code == 0
    said = (
        "ResourceClaim default/c: spec.devices.requests[0].exactly.tolerations: "
        "dropped, because feature gate `DRADeviceTaints` is off"
    )
    assert said in ended.err
    (warning,) = json.loads(ended.out)["warnings"]
    assert warning.endswith(said)


def test_what_comes_out_of_a_server_keeps_the_fields_of_closed_gates(typed: Typed, desk: Path) -> None:
    stored = TOLERANT.replace("  name: c\n", "  name: c\n  uid: 8be7ef3c-1111-4222-8333-0123456789ab\n")
    (desk / "c.yaml").write_text(SMALL + stored)
    assert typed("allocate", "-f", "c.yaml", *NO_TAINTS).err == ""


PARTS = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: counters}
spec:
  driver: gpu.example.com
  nodeName: node-a
  pool: {name: node-a, generation: 1, resourceSliceCount: 2}
  sharedCounters: [{name: gpu, counters: {memory: {value: 80Gi}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: devices}
spec:
  driver: gpu.example.com
  nodeName: node-a
  pool: {name: node-a, generation: 1, resourceSliceCount: 2}
  devices:
  - {name: gpu-0, consumesCounters: [{counterSet: gpu, counters: {memory: {value: 80Gi}}}]}
  - {name: half, consumesCounters: [{counterSet: gpu, counters: {memory: {value: 40Gi}}}]}
---
"""


@pytest.mark.parametrize("gate", list(GATES))
def test_closing_a_gate_never_gives_out_what_is_held(typed: Typed, desk: Path, gate: str) -> None:
    (desk / "c.yaml").write_text(
        node("node-a") + GPU + PARTS + claim("had", "gpu", status=HELD) + claim("c", "gpu")
    )
    off = ",".join(f"{name}=false" for name, other in GATES.items() if gate in (name, *other.requires))
    ended = typed("allocate", "-f", "c.yaml", "--feature-gates", off)
    assert ended.code in (1, 2)
    assert "placed 0 of 1" in ended.out
    assert ("not used, because feature gate `DRAPartitionableDevices` is off" in ended.err) is (
        "DRAPartitionableDevices" in off
    )


def test_a_kind_behind_a_closed_gate_is_left_out(typed: Typed, desk: Path) -> None:
    rule = (
        "apiVersion: resource.k8s.io/v1\nkind: DeviceTaintRule\nmetadata: {name: day}\n"
        "spec: {deviceSelector: {}, taint: {key: x, effect: NoSchedule}}\n---\n"
    )
    (desk / "c.yaml").write_text(SMALL + rule + claim("c", "gpu"))
    assert typed("allocate", "-f", "c.yaml").code == 1
    ended = typed("allocate", "-f", "c.yaml", "--feature-gates", "DRADeviceTaintRules=false")
    assert ended.code == 0
    assert "DeviceTaintRule day is invalid and left out: apiVersion: `resource.k8s.io/v1` is not" in ended.err


# --- much of it ---


def test_text_output_is_limited_and_json_is_complete(typed: Typed, desk: Path) -> None:
    many = "".join(claim(f"bad-{number}", "gpu", count=-1) for number in range(30))
    (desk / "c.yaml").write_text(SMALL + many)
    ended = typed("allocate", "-f", "c.yaml", "-o", "json")
    assert len(_invalid(ended.out)) == 30
    lines = ended.err.splitlines()
    assert len([line for line in lines if "is invalid and left out" in line]) == 20
    assert "dray: 10 more objects are invalid; `-o json` lists them all" in lines


def test_objects_without_a_name_get_one(typed: Typed, desk: Path) -> None:
    unnamed = claim("c", "gpu").replace("  name: c\n", "  generateName: job-\n", 1)
    (desk / "c.yaml").write_text(SMALL + unnamed + unnamed)
    ended = typed("allocate", "-f", "c.yaml")
    assert "this ResourceClaim has no name yet and is called `job-00002` here" in ended.err
    assert "placed 1 of 2" in ended.out
