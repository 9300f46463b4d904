"""What it takes to start a container of a pod: its command and variables, its devices' edits, and its log.

Theory of operation: a container is worked out anew at each start, because what it refers to may have changed.
ConfigMaps and Secrets are read from the server then. What was read before stands in when the server does not
answer: a container that ran must be able to run again. Logs lie in a directory of their own for each pod,
one file for each attempt.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from dray.api.decode_report import json_name
from dray.client.client import Client
from dray.client.errors import Forbidden, NotFound
from dray.client.object_refs import key_of, kind_called, uid_of
from dray.client.rest_client import TROUBLE
from dray.node.containers.cdi import CdiFiles, NoSuchEdits
from dray.node.containers.environment import ConfigProblem, Resolved, Surroundings, resolve
from dray.node.containers.log_reader import log_path
from dray.node.containers.runtime.base import ContainerId, Launch, NotStarted
from dray.values.cache_bounds import Bound
from dray.wire.unix_sockets import make_private

Pod = Mapping[str, Any]

CONFIG_ERROR: Final = "CreateContainerConfigError"
READ: Final = Bound("config maps and secrets of containers", 1_000, "the agent of a node")


class LogFiles:
    """Where the output of containers is kept."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def of(self, pod: Pod, container: str, attempt: int) -> Path:
        """The file of one attempt."""
        namespace, name = key_of(pod)
        return log_path(self._directory, namespace, name, ContainerId(uid_of(pod), container, attempt))

    def attempts(self, pod: Pod, container: str) -> list[int]:
        """The attempts of which there is output, the oldest first."""
        folder = self.of(pod, container, 0).parent
        try:
            names = [path.name for path in folder.iterdir()]
        except OSError:
            return []
        stems = {name.partition(".")[0] for name in names if ".log" in name}
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def trim(self, pod: Pod, container: str, attempt: int) -> None:
        """Keep an attempt and the one before it."""
        folder = self.of(pod, container, 0).parent
        for old in self.attempts(pod, container):
            if old < attempt - 1:
                for path in folder.glob(f"{old}.log*"):
                    path.unlink(missing_ok=True)

    def forget(self, pod: Pod) -> None:
        """The pod is gone."""
        shutil.rmtree(self.of(pod, "c", 0).parent.parent, ignore_errors=True)

    def sweep(self, pods: Iterable[Pod]) -> None:
        """All pods but these are gone."""
        kept = {self.of(pod, "c", 0).parent.parent.name for pod in pods}
        try:
            folders = [path for path in self._directory.iterdir() if path.name not in kept]
        except OSError:
            return
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


class Launching:
    """Makes launches from pods."""

    def __init__(self, client: Client, cdi: CdiFiles, logs: LogFiles, around: Surroundings) -> None:
        self._client = client
        self._cdi = cdi
        self._logs = logs
        self._around = around
        self._read: dict[tuple[str, str, str], Mapping[str, Any]] = {}

    async def launch(
        self, pod: Pod, container: str, attempt: int, devices: tuple[str, ...]
    ) -> Launch | NotStarted:
        """A container ready to be started, or why it cannot be."""
        place, given = _place(pod, container)
        namespace, name = key_of(pod)

        async def lookup(kind: str, what: str) -> Mapping[str, Any] | None:
            return await self._looked_up(kind, namespace, what)

        found = await resolve(pod, place, lookup, self._around)
        if isinstance(found, ConfigProblem):
            return NotStarted(CONFIG_ERROR, found.message)
        identity = _identity(pod, place, given)
        if isinstance(identity, ConfigProblem):
            return NotStarted(CONFIG_ERROR, identity.message)
        try:
            edits = self._cdi.edits(devices)
        except NoSuchEdits as missing:
            return NotStarted("CreateContainerError", str(missing))
        log = self._logs.of(pod, container, attempt)
        make_private(log.parent)
        return Launch(
            pod_uid=uid_of(pod),
            pod_name=name,
            namespace=namespace,
            name=container,
            image=str(given.get("image") or ""),
            attempt=attempt,
            edits=edits,
            log=log,
            annotations=pod["metadata"].get("annotations") or {},
            **_resolved(found),
            **identity,
        )

    def trim(self, pod: Pod, container: str, attempt: int) -> None:
        """Keep the output of an attempt and of the one before it, and of no other."""
        self._logs.trim(pod, container, attempt)

    def forget(self, pod: Pod) -> None:
        """The pod is gone, and what its containers said with it."""
        self._logs.forget(pod)

    def sweep(self, pods: Iterable[Pod]) -> None:
        """All pods but these are gone."""
        self._logs.sweep(pods)

    async def _looked_up(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        key = (kind, namespace, name)
        try:
            found: Mapping[str, Any] = await self._client.get(kind_called(kind), name, namespace)
        except (NotFound, Forbidden) as refused:
            # A node is told that it may not see what is not there.
            self._read.pop(key, None)
            if isinstance(refused, Forbidden):
                raise
            return None
        except TROUBLE:
            if key not in self._read:
                raise
            return self._read[key]
        return READ.keep(self._read, key, found)


def _place(pod: Pod, container: str) -> tuple[str, Mapping[str, Any]]:
    """The field path of a container, and what is written there."""
    for field in ("initContainers", "containers"):
        for position, one in enumerate((pod.get("spec") or {}).get(field) or ()):
            if one.get("name") == container:
                return f"spec.{field}[{position}]", one
    raise KeyError(container)


def _resolved(found: Resolved) -> dict[str, Any]:
    return {
        "command": found.command,
        "args": found.args,
        "env": found.env,
        "working_dir": found.working_dir,
    }


def _identity(pod: Pod, place: str, container: Pod) -> dict[str, Any] | ConfigProblem:
    """As whom a container runs, when somebody says so; the container's own word counts more."""
    chosen: dict[str, Any] = {}
    for where, holder in (("spec", pod.get("spec") or {}), (place, container)):
        context = holder.get("securityContext") or {}
        if not isinstance(context, Mapping):
            return ConfigProblem(f"{where}.securityContext", f"expected an object, got {json_name(context)}")
        for name, field in (("user", "runAsUser"), ("group", "runAsGroup")):
            value = context.get(field)
            if isinstance(value, int):
                chosen[name] = value
            elif value is not None:
                told = f"expected an integer, got {json_name(value)}"
                return ConfigProblem(f"{where}.securityContext.{field}", told)
    return chosen
