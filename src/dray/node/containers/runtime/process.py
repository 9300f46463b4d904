"""The runtime for plain processes: runs a container's command with its devices' variables and hooks.

Theory of operation: there is no image. A container sees the machine, with its own environment and nothing of
the agent's; `PodUsers` keeps it from the agent's files and processes, and without them it can do what the
agent's user can. Mounts that have the same path inside and outside exist already; those at another path
cannot be applied, and the start says so in a note. `TMPDIR` is a directory of the container's own, and it
identifies processes that have left the container's session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from dray.clock import Clock
from dray.node.containers.runtime.base import (
    DEFAULT_PATH,
    ContainerLaunch,
    ContainerNotStarted,
    ContainerStarted,
)
from dray.node.containers.runtime.container_shims import (
    SCRATCH_LINK,
    ShimRuntime,
    delete_container_files,
)
from dray.node.containers.runtime.container_users import PodUsers
from dray.wire.cdi import Hook


class ProcessRuntime(ShimRuntime):
    """Runs containers as processes; their files are in one directory.

    Without `users` containers run as the agent's user, or as the one that they name.
    """

    name: Final = "process"

    def __init__(self, directory: Path, clock: Clock | None = None, users: PodUsers | None = None) -> None:
        super().__init__(directory, clock)
        self._users = users

    async def start(self, launch: ContainerLaunch) -> ContainerStarted | ContainerNotStarted:
        """Start the container's command."""
        refusal = _check_command(launch)
        if refusal is None:
            check = self._users.check_launch(launch) if self._users else _check_user(launch)
            refusal = await check
        if refusal is not None:
            return refusal
        directory = self._shims.create_directory(launch)
        if not isinstance(directory, Path):
            return directory
        try:
            config = _build_config(launch, directory, self._users)
        except OSError as error:
            delete_container_files(directory)
            return ContainerNotStarted("CreateContainerError", f"cannot prepare `{directory}`: {error}")
        outcome = await self._shims.start(launch, config)
        if isinstance(outcome, ContainerStarted):
            return ContainerStarted(outcome.id, _build_notes(launch, self._users))
        return outcome


def _check_command(launch: ContainerLaunch) -> ContainerNotStarted | None:
    if not launch.command:
        return ContainerNotStarted(
            "CreateContainerConfigError",
            "the process runtime runs commands of this machine and does not look at image "
            f"`{launch.image}`: give the container a command",
        )
    return None


async def _check_user(launch: ContainerLaunch) -> ContainerNotStarted | None:
    if os.geteuid() != 0 and launch.user not in (None, os.geteuid()):
        return ContainerNotStarted(
            "CreateContainerConfigError",
            f"user {launch.user}: only an agent that runs as root can run a container as another user",
        )
    return None


def _build_config(launch: ContainerLaunch, directory: Path, users: PodUsers | None) -> dict[str, Any]:
    env = {"PATH": DEFAULT_PATH, "HOME": "/", "HOSTNAME": launch.pod_name}
    if users is not None:
        pod_user = users.prepare(launch, directory)
        user, scratch = pod_user.config, pod_user.scratch
    else:
        user, scratch = _build_agent_user(launch), _make_scratch(launch, directory)
    mark = ""
    if scratch and "TMPDIR" not in launch.env:
        env["TMPDIR"] = scratch
        mark = f"TMPDIR={scratch}"
    env |= launch.env
    env |= dict(variable.split("=", 1) for variable in launch.edits.env)
    state = {"ociVersion": "1.0.2", "id": str(launch.id), "bundle": str(directory)}
    return {
        "argv": [*launch.command, *launch.args],
        "env": env,
        "cwd": launch.working_dir or "/",
        **user,
        "hooks": [build_hook_command(hook) for hook in launch.edits.hooks],
        "hook_state": msgspec.json.encode(state).decode()[:-1],
        "mark": mark,
    }


def _build_agent_user(launch: ContainerLaunch) -> dict[str, Any]:
    gids = list(launch.edits.additional_gids)
    groups = gids if os.geteuid() == 0 and (gids or launch.user is not None) else None
    return {"user": launch.user, "group": launch.group, "groups": groups}


def _make_scratch(launch: ContainerLaunch, directory: Path) -> str:
    """Make a directory for temporary files; another user could not reach it in the agent's directory."""
    if launch.user is not None or "TMPDIR" in launch.env:
        return ""
    scratch = directory / SCRATCH_LINK
    scratch.mkdir(mode=0o700)
    return str(scratch)


def build_hook_command(hook: Hook) -> dict[str, Any]:
    """Build the command of a hook for a shim to run."""
    return {
        "name": hook.hook_name,
        "path": hook.path,
        "args": list(hook.args) or [hook.path],
        "env": dict(variable.split("=", 1) for variable in hook.env),
        "timeout": hook.timeout,
        "told": "hook.log",
    }


def _build_notes(launch: ContainerLaunch, users: PodUsers | None) -> tuple[str, ...]:
    """Build a note on the edits that cannot be applied to plain processes."""
    others = users.list_unsupported_edits(launch) if users else _list_unsupported_edits(launch)
    unsupported = ", ".join((*_list_unsupported_mounts(launch), *others))
    return (f"the process runtime cannot apply {unsupported}",) if unsupported else ()


def _list_unsupported_mounts(launch: ContainerLaunch) -> Iterator[str]:
    for mount in launch.edits.mounts:
        if mount.host_path != mount.container_path:
            yield f"mount of `{mount.host_path}` at `{mount.container_path}`"


def _list_unsupported_edits(launch: ContainerLaunch) -> Iterator[str]:
    for node in launch.edits.device_nodes:
        if node.host_path not in ("", node.path):
            yield f"device `{node.host_path}` at `{node.path}`"
    if launch.edits.additional_gids and os.geteuid() != 0:
        yield f"groups {', '.join(map(str, launch.edits.additional_gids))}"
