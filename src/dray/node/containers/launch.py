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

from dray.api.decode_report import describe_json_type
from dray.client.client import Client
from dray.client.errors import ForbiddenError, NotFoundError
from dray.client.object_refs import get_key, get_kind, get_uid
from dray.client.rest_client import CALL_ERRORS
from dray.node.containers.cdi import CdiDeviceError, CdiSpecCache
from dray.node.containers.environment import (
    ConfigProblem,
    NodeEnvironment,
    ResolvedContainer,
    resolve_container,
)
from dray.node.containers.log_reader import build_log_path
from dray.node.containers.runtime.base import ContainerId, ContainerLaunch, ContainerNotStarted
from dray.values.cache_bounds import CacheBound
from dray.wire.unix_sockets import make_private_directory

Pod = Mapping[str, Any]

CONFIG_ERROR: Final = "CreateContainerConfigError"
CONFIG_CACHE_BOUND: Final = CacheBound("config maps and secrets of containers", 1_000, "the agent of a node")


class ContainerLogFiles:
    """Where the output of containers is kept."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get_path(self, pod: Pod, container: str, attempt: int) -> Path:
        """The file of one attempt."""
        namespace, name = get_key(pod)
        return build_log_path(self._directory, namespace, name, ContainerId(get_uid(pod), container, attempt))

    def list_attempts(self, pod: Pod, container: str) -> list[int]:
        """The attempts of which there is output, the oldest first."""
        folder = self.get_path(pod, container, 0).parent
        try:
            names = [path.name for path in folder.iterdir()]
        except OSError:
            return []
        stems = {name.partition(".")[0] for name in names if ".log" in name}
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def prune(self, pod: Pod, container: str, attempt: int) -> None:
        """Keep an attempt and the one before it."""
        folder = self.get_path(pod, container, 0).parent
        for old in self.list_attempts(pod, container):
            if old < attempt - 1:
                for path in folder.glob(f"{old}.log*"):
                    path.unlink(missing_ok=True)

    def delete_pod(self, pod: Pod) -> None:
        """The pod is gone."""
        shutil.rmtree(self.get_path(pod, "c", 0).parent.parent, ignore_errors=True)

    def delete_orphans(self, pods: Iterable[Pod]) -> None:
        """All pods but these are gone."""
        kept = {self.get_path(pod, "c", 0).parent.parent.name for pod in pods}
        try:
            folders = [path for path in self._directory.iterdir() if path.name not in kept]
        except OSError:
            return
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


class PodLaunchBuilder:
    """Makes launches from pods."""

    def __init__(
        self, client: Client, cdi: CdiSpecCache, logs: ContainerLogFiles, node: NodeEnvironment
    ) -> None:
        self._client = client
        self._cdi = cdi
        self._logs = logs
        self._node = node
        self._config_cache: dict[tuple[str, str, str], Mapping[str, Any]] = {}

    async def build_launch(
        self, pod: Pod, container: str, attempt: int, devices: tuple[str, ...]
    ) -> ContainerLaunch | ContainerNotStarted:
        """A container ready to be started, or why it cannot be."""
        place, given = _find_container(pod, container)
        namespace, name = get_key(pod)

        async def lookup(kind: str, what: str) -> Mapping[str, Any] | None:
            return await self._fetch_config(kind, namespace, what)

        found = await resolve_container(pod, place, lookup, self._node)
        if isinstance(found, ConfigProblem):
            return ContainerNotStarted(CONFIG_ERROR, found.message)
        identity = _resolve_user(pod, place, given)
        if isinstance(identity, ConfigProblem):
            return ContainerNotStarted(CONFIG_ERROR, identity.message)
        try:
            edits = self._cdi.collect_edits(devices)
        except CdiDeviceError as missing:
            return ContainerNotStarted("CreateContainerError", str(missing))
        log = self._logs.get_path(pod, container, attempt)
        make_private_directory(log.parent)
        return ContainerLaunch(
            pod_uid=get_uid(pod),
            pod_name=name,
            namespace=namespace,
            name=container,
            image=str(given.get("image") or ""),
            attempt=attempt,
            edits=edits,
            log=log,
            annotations=pod["metadata"].get("annotations") or {},
            **_to_launch_fields(found),
            **identity,
        )

    def prune_logs(self, pod: Pod, container: str, attempt: int) -> None:
        """Keep the output of an attempt and of the one before it, and of no other."""
        self._logs.prune(pod, container, attempt)

    def delete_logs(self, pod: Pod) -> None:
        """The pod is gone, and what its containers said with it."""
        self._logs.delete_pod(pod)

    def delete_orphaned_logs(self, pods: Iterable[Pod]) -> None:
        """All pods but these are gone."""
        self._logs.delete_orphans(pods)

    async def _fetch_config(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        key = (kind, namespace, name)
        try:
            found: Mapping[str, Any] = await self._client.get(get_kind(kind), name, namespace)
        except (NotFoundError, ForbiddenError) as refused:
            # A node is told that it may not see what is not there.
            self._config_cache.pop(key, None)
            if isinstance(refused, ForbiddenError):
                raise
            return None
        except CALL_ERRORS:
            if key not in self._config_cache:
                raise
            return self._config_cache[key]
        return CONFIG_CACHE_BOUND.put(self._config_cache, key, found)


def _find_container(pod: Pod, container: str) -> tuple[str, Mapping[str, Any]]:
    """The field path of a container, and what is written there."""
    for field in ("initContainers", "containers"):
        for position, one in enumerate((pod.get("spec") or {}).get(field) or ()):
            if one.get("name") == container:
                return f"spec.{field}[{position}]", one
    raise KeyError(container)


def _to_launch_fields(found: ResolvedContainer) -> dict[str, Any]:
    return {
        "command": found.command,
        "args": found.args,
        "env": found.env,
        "working_dir": found.working_dir,
    }


def _resolve_user(pod: Pod, field_path: str, container: Pod) -> dict[str, Any] | ConfigProblem:
    """As whom a container runs, when somebody says so; the container's own word counts more."""
    chosen: dict[str, Any] = {}
    for where, holder in (("spec", pod.get("spec") or {}), (field_path, container)):
        context = holder.get("securityContext") or {}
        if not isinstance(context, Mapping):
            return ConfigProblem(
                f"{where}.securityContext", f"expected an object, got {describe_json_type(context)}"
            )
        for name, field in (("user", "runAsUser"), ("group", "runAsGroup")):
            value = context.get(field)
            if isinstance(value, int):
                chosen[name] = value
            elif value is not None:
                told = f"expected an integer, got {describe_json_type(value)}"
                return ConfigProblem(f"{where}.securityContext.{field}", told)
    return chosen
