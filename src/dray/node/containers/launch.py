"""Builds the launch of a container: its command and variables, its devices' CDI edits, and its log file.

Theory of operation: a launch is built again at each start, because the objects it refers to may have changed.
ConfigMaps and Secrets are read from the server each time. When the server is unreachable, the last copy is
used: a container that ran must be able to restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dray.api.decode_report import describe_json_type
from dray.client.client import Client
from dray.client.errors import ForbiddenError, NotFoundError
from dray.client.object_refs import get_key, get_kind, get_uid
from dray.client.rest_client import CALL_ERRORS
from dray.node.containers.cdi import CdiDeviceError, CdiSpecCache
from dray.node.containers.environment import ConfigProblem, NodeEnvironment, resolve_container
from dray.node.containers.log_files import ContainerLogFiles
from dray.node.containers.runtime.base import ContainerLaunch, ContainerNotStarted
from dray.values.cache_bounds import CacheBound
from dray.wire.unix_sockets import make_private_directory

Pod = Mapping[str, Any]

CONFIG_ERROR: Final = "CreateContainerConfigError"
CONFIG_CACHE_BOUND: Final = CacheBound("config maps and secrets of containers", 1_000, "the agent of a node")


class PodLaunchBuilder:
    """Builds launches of the containers of pods."""

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
        """Build the launch of a container, or return why it cannot be started."""
        field_path, spec = _find_container(pod, container)
        namespace, name = get_key(pod)

        async def lookup(kind: str, name: str) -> Mapping[str, Any] | None:
            return await self._fetch_config(kind, namespace, name)

        resolved = await resolve_container(pod, field_path, lookup, self._node)
        if isinstance(resolved, ConfigProblem):
            return ContainerNotStarted(CONFIG_ERROR, resolved.message)
        user = _resolve_user(pod, field_path, spec)
        if isinstance(user, ConfigProblem):
            return ContainerNotStarted(CONFIG_ERROR, user.message)
        try:
            edits = self._cdi.collect_edits(devices)
        except CdiDeviceError as error:
            return ContainerNotStarted("CreateContainerError", str(error))
        log = self._logs.get_path(pod, container, attempt)
        make_private_directory(log.parent)
        return ContainerLaunch(
            pod_uid=get_uid(pod),
            pod_name=name,
            namespace=namespace,
            name=container,
            image=str(spec.get("image") or ""),
            attempt=attempt,
            edits=edits,
            log=log,
            annotations=pod["metadata"].get("annotations") or {},
            command=resolved.command,
            args=resolved.args,
            env=resolved.env,
            working_dir=resolved.working_dir,
            **user,
        )

    def prune_logs(self, pod: Pod, container: str, attempt: int) -> None:
        """Delete the logs of all attempts older than the previous one."""
        self._logs.prune(pod, container, attempt)

    def delete_logs(self, pod: Pod) -> None:
        """Delete the logs of a pod."""
        self._logs.delete_pod(pod)

    def delete_orphaned_logs(self, pods: Iterable[Pod]) -> None:
        """Delete the logs of all pods but these."""
        self._logs.delete_orphans(pods)

    async def _fetch_config(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        key = (kind, namespace, name)
        try:
            found: Mapping[str, Any] = await self._client.get(get_kind(kind), name, namespace)
        except (NotFoundError, ForbiddenError) as refused:
            # The server also forbids a node to read an object that does not exist.
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
    """Return the field path of a container, and its spec."""
    for field in ("initContainers", "containers"):
        for position, one in enumerate((pod.get("spec") or {}).get(field) or ()):
            if one.get("name") == container:
                return f"spec.{field}[{position}]", one
    raise KeyError(container)


def _resolve_user(pod: Pod, field_path: str, container: Pod) -> dict[str, Any] | ConfigProblem:
    """Return user and group from the security contexts; the container's overrides the pod's."""
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
                detail = f"expected an integer, got {describe_json_type(value)}"
                return ConfigProblem(f"{where}.securityContext.{field}", detail)
    return chosen
