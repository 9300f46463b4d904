"""Files for containers of an OCI runtime: a busybox, and whether containers can be made."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from dray.node.containers.runtime.oci import OciRuntime, OciRuntimeError, find_runtime
from tests.unit.node.containers.runtime.machine import Machine, check_started, run

APPLETS = (
    "sh",
    "cat",
    "echo",
    "env",
    "id",
    "ls",
    "ps",
    "sleep",
    "true",
    "touch",
    "hostname",
    "grep",
    "head",
    "wc",
)


def lay_out(folder: Path) -> Path:
    """A root with a busybox in it."""
    busybox = shutil.which("busybox")
    assert busybox is not None
    for name in ("bin", "etc", "dev", "proc", "sys", "tmp", "run"):
        (folder / name).mkdir(parents=True)
    shutil.copy(busybox, folder / "bin" / "busybox")
    for applet in APPLETS:
        (folder / "bin" / applet).symlink_to("busybox")
    return folder


@functools.cache
def hindrance() -> str:
    """Why there can be no containers of an OCI runtime here; empty when there can."""
    if os.geteuid() != 0:
        return "containers of an OCI runtime are made by root"
    if shutil.which("busybox") is None:
        return "there is no busybox to make the files of a container from"
    try:
        program = find_runtime()
    except OciRuntimeError as missing:
        return str(missing)
    with tempfile.TemporaryDirectory(prefix="dray-") as name:
        machine = Machine(Path(name))
        runtime = OciRuntime(machine.containers, lay_out(Path(name) / "rootfs"), program)

        async def trial() -> str:
            container = check_started(await runtime.start(machine.launch("true")))
            exit = await runtime.wait(container)
            await runtime.remove(container)
            return exit.message

        message = run(trial())
    # A busybox with shared libraries, or a machine that allows no namespaces; anything else is our fault.
    ours = not any(word in message.lower() for word in ("cgroup", "not permitted", "no such file"))
    assert not message or not ours, message
    return message


def needs_oci() -> None:
    """Pass over a test where there can be no such containers, saying why."""
    reason = hindrance()
    if reason:
        pytest.skip(reason)
