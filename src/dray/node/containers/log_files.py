"""The log files of a node's containers: one directory per pod, one file per attempt of a container."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dray.client.object_refs import get_key, get_uid
from dray.node.containers.runtime.base import ContainerId

Pod = Mapping[str, Any]


def build_log_path(root: Path, namespace: str, pod: str, container: ContainerId) -> Path:
    """Build the path of a container's log, in the layout of the kubelet."""
    folder = f"{_sanitize(namespace)}_{_sanitize(pod)}_{_sanitize(container.pod_uid)}"
    return root / folder / _sanitize(container.name) / f"{container.attempt}.log"


def _sanitize(name: str) -> str:
    """Turn any name into a single path component."""
    return name.replace("/", "_").replace("\0", "_") if name.strip(".") else f"_{name}"


class ContainerLogFiles:
    """The logs of all containers of a node."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get_path(self, pod: Pod, container: str, attempt: int) -> Path:
        """Return the file of one attempt."""
        namespace, name = get_key(pod)
        return build_log_path(self._directory, namespace, name, ContainerId(get_uid(pod), container, attempt))

    def list_attempts(self, pod: Pod, container: str) -> list[int]:
        """List the attempts that have a log, the oldest first."""
        folder = self.get_path(pod, container, 0).parent
        try:
            names = [path.name for path in folder.iterdir()]
        except OSError:
            return []
        stems = {name.partition(".")[0] for name in names if ".log" in name}
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def prune(self, pod: Pod, container: str, attempt: int) -> None:
        """Delete the logs of all attempts older than the previous one."""
        folder = self.get_path(pod, container, 0).parent
        for old in self.list_attempts(pod, container):
            if old < attempt - 1:
                for path in folder.glob(f"{old}.log*"):
                    path.unlink(missing_ok=True)

    def delete_pod(self, pod: Pod) -> None:
        """Delete the logs of a pod."""
        shutil.rmtree(self.get_path(pod, "c", 0).parent.parent, ignore_errors=True)

    def delete_orphans(self, pods: Iterable[Pod]) -> None:
        """Delete the logs of all pods but these."""
        existing = {self.get_path(pod, "c", 0).parent.parent.name for pod in pods}
        try:
            folders = [path for path in self._directory.iterdir() if path.name not in existing]
        except OSError:
            return
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
