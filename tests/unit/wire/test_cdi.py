"""CDI specs: problems are reported with their field, and a spec has no later version than it needs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dray.wire.cdi import (
    CdiDevice,
    CdiSpec,
    CdiSpecError,
    ContainerEdits,
    DeviceNode,
    Hook,
    Mount,
    QualifiedDeviceName,
    get_minimum_version,
    parse_qualified_name,
    parse_spec,
    serialize_spec,
)

KIND = "gpu.example.com/gpu"
NONE = ContainerEdits()


def spec(*devices: CdiDevice, kind: str = KIND, edits: ContainerEdits = NONE, **more: Any) -> CdiSpec:
    return CdiSpec(
        cdi_version="0.3.0",
        kind=kind,
        devices=devices or (CdiDevice(name="gpu-0"),),
        container_edits=edits,
        **more,
    )


def problems(made: CdiSpec) -> list[str]:
    with pytest.raises(CdiSpecError) as bad:
        serialize_spec(made)
    return list(bad.value.problems)


FULL = spec(
    CdiDevice(
        name="gpu-0",
        annotations={"example.com/a": "b"},
        container_edits=ContainerEdits(
            env=("GPU=0", "EMPTY=", "LINES=a\nb"),
            device_nodes=(
                DeviceNode(
                    path="/dev/gpu", host_path="/dev/gpu0", type="c", major=1, permissions="rw", uid=0
                ),
            ),
            mounts=(Mount(host_path="/h", container_path="/c", options=("ro",), type="bind"),),
            hooks=(Hook(hook_name="createContainer", path="/bin/true", args=("true",), timeout=5),),
            additional_gids=(5,),
        ),
    ),
    edits=ContainerEdits(env=("ALL=1",)),
)


def test_what_is_written_is_read_back() -> None:
    content = serialize_spec(FULL)
    back = parse_spec(content)
    assert back.devices == FULL.devices
    assert back.container_edits == FULL.container_edits
    assert json.loads(content)["devices"][0]["containerEdits"]["deviceNodes"][0] == {
        "path": "/dev/gpu",
        "hostPath": "/dev/gpu0",
        "type": "c",
        "major": 1,
        "permissions": "rw",
        "uid": 0,
    }


def test_members_that_we_do_not_know_are_passed_over() -> None:
    content = {"cdiVersion": "1.0.0", "kind": KIND, "devices": [{"name": "a", "new": 1}], "later": {}}
    assert parse_spec(json.dumps(content).encode()).devices == (CdiDevice(name="a"),)


@pytest.mark.parametrize(
    ("made", "version"),
    [
        (spec(CdiDevice(name="gpu-0", container_edits=ContainerEdits(env=("A=B",)))), "0.3.0"),
        (
            spec(edits=ContainerEdits(mounts=(Mount(host_path="/h", container_path="/c", type="bind"),))),
            "0.4.0",
        ),
        (spec(CdiDevice(name="0")), "0.5.0"),
        (spec(edits=ContainerEdits(device_nodes=(DeviceNode(path="/dev/a", host_path="/dev/b"),))), "0.5.0"),
        (spec(CdiDevice(name="a", annotations={"a": "b"})), "0.6.0"),
        (spec(annotations={"a": "b"}), "0.6.0"),
        (spec(edits=ContainerEdits(additional_gids=(1,))), "0.7.0"),
        (FULL, "0.7.0"),
    ],
)
def test_a_spec_has_the_lowest_version_with_its_fields(made: CdiSpec, version: str) -> None:
    assert get_minimum_version(made) == version
    assert json.loads(serialize_spec(made))["cdiVersion"] == version


def test_all_problems_are_reported_at_once_with_their_fields() -> None:
    edits = ContainerEdits(
        env=("GOOD=1", "NOTHING", "=x", "NUL=\0"),
        device_nodes=(DeviceNode(type="x", permissions="rx"),),
        mounts=(Mount(host_path="/h"),),
        hooks=(Hook(hook_name="never", path="true", env=("X",)),),
    )
    made = CdiSpec(
        kind="gpu",
        devices=(CdiDevice(name="a b"), CdiDevice(name="c", container_edits=edits), CdiDevice(name="c")),
    )
    at = "devices[1].containerEdits"
    assert problems(made) == [
        "kind: `gpu` is not `vendor/class`, for example `gpu.example.com/gpu`",
        "devices[0].name: `a b` is not made of letters, digits and `_ - . :`",
        f"{at}.env[1]: expected `NAME=value`, got `NOTHING`",
        f"{at}.env[2]: expected `NAME=value`, got `=x`",
        f"{at}.env[3]: expected `NAME=value`, got `NUL=\0`",
        f"{at}.deviceNodes[0].path: expected the path inside the container",
        f"{at}.deviceNodes[0].type: `x` is not one of b, c, u, p",
        f"{at}.deviceNodes[0].permissions: `rx` has more than r, w and m",
        f"{at}.mounts[0].containerPath: expected a path, got ``",
        f"{at}.hooks[0].hookName: `never` is not one of prestart, createRuntime, createContainer, "
        "startContainer, poststart, poststop",
        f"{at}.hooks[0].path: expected an absolute path, got `true`",
        f"{at}.hooks[0].env[0]: expected `NAME=value`, got `X`",
        "devices[2].name: `c` is there twice",
    ]


def test_a_spec_without_devices_is_none() -> None:
    assert problems(CdiSpec(kind=KIND)) == ["devices: expected at least one"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"{", "not a CDI spec: "),
        (b"[]", "not a CDI spec: Expected `object`, got `array`"),
        (b'{"kind": 5}', "not a CDI spec: Expected `str`, got `int` - at `$.kind`"),
        (
            b'{"cdiVersion": "9.0.0", "kind": "a/b", "devices": [{"name": "c"}]}',
            "cdiVersion: `9.0.0` is not one of 0.3.0,",
        ),
    ],
)
def test_a_file_that_is_no_spec_is_an_error(content: bytes, text: str) -> None:
    with pytest.raises(CdiSpecError) as bad:
        parse_spec(content)
    assert text in str(bad.value)


@pytest.mark.parametrize("name", ["gpu-0", "0", "a.b_c:d-e", "0b5e1a7e-5c1f"])
def test_a_qualified_name_is_taken_apart(name: str) -> None:
    assert parse_qualified_name(f"{KIND}={name}") == QualifiedDeviceName(KIND, name)
    assert str(parse_qualified_name(f"{KIND}={name}")) == f"{KIND}={name}"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "gpu-0",
        f"{KIND}=",
        f"{KIND}=../../etc/passwd",
        f"{KIND}=a/b",
        f"{KIND}=..",
        f"{KIND}=a\n",
        f"{KIND}=a=b",
        "../gpu=a",
        "a/../b=c",
        "./gpu=a",
        "vendor/cl/ass=a",
        "vendor/class/=a",
        f"{KIND}=-a",
    ],
)
def test_a_name_that_could_lead_out_of_a_directory_is_none(name: str) -> None:
    with pytest.raises(ValueError, match=r"is no name of a CDI device|a device is named with"):
        parse_qualified_name(name)


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "a\0b", "a\n"])
def test_a_device_whose_name_leads_elsewhere_is_not_written(name: str) -> None:
    assert problems(spec(CdiDevice(name=name))) == [
        f"devices[0].name: `{name}` is not made of letters, digits and `_ - . :`"
    ]


def test_edits_add_up_in_their_order() -> None:
    one, two = ContainerEdits(env=("A=1",), additional_gids=(1,)), ContainerEdits(env=("A=2",))
    assert one | two == ContainerEdits(env=("A=1", "A=2"), additional_gids=(1,))
    assert one
    assert not ContainerEdits()
