"""CDI files: the forms in which authors may write edits, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dray.driver import Claim, DeviceNode, Driver, Got, Hook, Mount, Ready
from dray.driver.preparing.cdi_files import ClaimCdiFiles, sanitize_uid
from dray.driver.preparing.claim_conversion import PrepareRefusedError
from tests.unit.driver.driver_node import DRIVER, Gpu, open_driver_node

GOT = Got("r", "p", "d")


def test_short_and_long_forms_are_equivalent(tmp_path: Path) -> None:
    files = ClaimCdiFiles(tmp_path, DRIVER)
    short = Ready(GOT, env={"A": "1"}, mounts=["/host/lib:/lib/gpu:ro"], device_nodes=["/dev/gpu0"])
    long = Ready(
        GOT,
        env={"A": "1"},
        mounts=[Mount(host_path="/host/lib", container_path="/lib/gpu", options=("ro", "bind"))],
        device_nodes=[DeviceNode(path="/dev/gpu0")],
    )
    assert files.render_spec("u", [short]) == files.render_spec("u", [long])
    path = Ready(GOT, device_nodes=[Path("/dev/gpu0")])
    assert files.render_spec("u", [path]) == files.render_spec("u", [Ready(GOT, device_nodes=["/dev/gpu0"])])
    hook = Hook(hook_name="createRuntime", path="/bin/true", args=("true",))
    written = json.loads(files.render_spec("u", [Ready(GOT, hooks=[hook])]) or b"")
    assert written["devices"] == [
        {
            "name": "u-0",
            "containerEdits": {
                "hooks": [{"hookName": "createRuntime", "path": "/bin/true", "args": ["true"]}]
            },
        }
    ]


def test_devices_that_need_nothing_have_no_name_and_no_file(tmp_path: Path) -> None:
    files = ClaimCdiFiles(tmp_path, DRIVER)
    ready = [Ready(GOT), Ready(GOT, env={"A": "1"}), Ready(GOT, cdi=["vendor.example/net=eth0"])]
    assert files.build_device_names("u", ready) == (
        (),
        (f"{DRIVER}/claim=u-1",),
        ("vendor.example/net=eth0",),
    )
    assert files.render_spec("u", [ready[0], ready[2]]) is None


@pytest.mark.parametrize(
    ("ready", "message"),
    [
        (Ready(GOT, mounts=["/only-host"]), "a mount is written as `host:container`"),
        (Ready(GOT, env={"A": "1\0"}), r"env\[0\]: expected `NAME=value`"),
        (Ready(GOT, cdi=["nonsense"]), "`nonsense` is no name of a CDI device"),
        (Ready(GOT, hooks=[Hook(hook_name="never", path="/x")]), "hookName: `never` is not one of"),
    ],
)
def test_edits_that_make_no_valid_cdi_file_are_refused(tmp_path: Path, ready: Ready, message: str) -> None:
    with pytest.raises(PrepareRefusedError, match=message.replace("(", r"\(")):
        ClaimCdiFiles(tmp_path, DRIVER).render_spec("u", [ready])


@pytest.mark.parametrize("uid", ["../x", "a/b", "", ".", "-", "x" * 80, "a\n", "\udce4", "ä", "a b"])
def test_unsafe_uids_become_digests(tmp_path: Path, uid: str) -> None:
    name = sanitize_uid(uid)
    assert name.startswith("x-")
    assert len(name) == 34
    assert ClaimCdiFiles(tmp_path, DRIVER).get_path(uid).parent == tmp_path
    assert sanitize_uid(name) == name, "a name found on the disk leads back to the same file"
    assert sanitize_uid("0f2b8c1e-5a64-4be0-9a06-3f7a5a2d8c11") == "0f2b8c1e-5a64-4be0-9a06-3f7a5a2d8c11"


Answer = Callable[[Claim], Any]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda claim: [], "`prepare` returned nothing for device `gpu-0` of request `gpu`"),
        (lambda claim: None, "`prepare` returned nothing for device `gpu-0` of request `gpu`"),
        (lambda claim: [Ready(claim.devices[0])] * 2, "`prepare` returned 2 answers for device `gpu-0`"),
        (
            lambda claim: [Ready(claim.devices[0]), Ready(GOT)],
            "a device that is not among those of the claim",
        ),
        (lambda claim: ["gpu-0"], "`prepare` must return `Ready` values, not `str`"),
        (lambda claim: [Ready(claim.devices[0], mounts=["/x"])], "a mount is written as"),
    ],
)
def test_invalid_results_are_errors_and_leave_no_file(answer: Answer, message: str) -> None:
    async def scenario() -> None:
        class Wrong(Gpu):
            def prepare(self, claim: Claim) -> Any:
                return answer(claim)

        async with open_driver_node() as node:
            wrong = Wrong()
            async with node.run_driver(wrong) as agent:
                uid = await node.create_claim("c")
                assert message in await agent.expect_refusal(uid, "c")
                assert node.cdi() == {}
                await agent.unprepare_ok(uid, "c")
                assert wrong.calls == [("unprepare", "c")]

    asyncio.run(scenario())


def test_a_driver_that_does_not_override_anything_prepares_devices_that_need_nothing() -> None:
    async def scenario() -> None:
        class Plain(Driver):
            name = DRIVER

        async with open_driver_node() as node, node.run_driver(Plain()) as agent:
            uid = await node.create_claim("c")
            assert [each[2:] for each in await agent.prepare_ok(uid, "c")] == [("gpu-0", ())]

    asyncio.run(scenario())
