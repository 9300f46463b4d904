"""Inspects a node: collects what is there, then judges it.

Theory of operation: `observe_node` reads directories and asks drivers; `find_problems` is a pure function of
what it saw. Claims and CDI files change while they are read, and a driver writes a file before the kubelet
records its devices. So a file counts as left over only when it is older than `SETTLE_SECONDS`, and the
checkpoint is read before the CDI files: what it names was written earlier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dray.node.containers.cdi import DEFAULT_DIRECTORIES, CdiSpecCache
from dray.node.inspection.findings import FindingSeverity, NodeCheck, NodeFinding
from dray.node.inspection.kubelet_checkpoint import (
    FILE_NAME,
    CheckpointedClaim,
    DamagedCheckpointError,
    read_kubelet_checkpoint,
)
from dray.node.inspection.plugin_sockets import PluginAnswer, ask_plugins, is_listening, list_sockets
from dray.wire.grpc_services import DRA_PLUGIN, RESOURCE_PLUGIN

SETTLE_SECONDS: Final = 120.0
_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?=-|$)")
"""A claim's uid at the start of the name of a CDI device. Uids of devices have a prefix there."""


@dataclass(frozen=True, slots=True)
class NodePaths:
    """Where a kubelet and a container runtime keep their files."""

    kubelet: Path = Path("/var/lib/kubelet")
    cdi: tuple[Path, ...] = DEFAULT_DIRECTORIES

    @property
    def registration(self) -> Path:
        return self.kubelet / "plugins_registry"

    @property
    def plugins(self) -> Path:
        return self.kubelet / "plugins"

    @property
    def checkpoint(self) -> Path:
        return self.kubelet / FILE_NAME


@dataclass(frozen=True, slots=True)
class NodeObservation:
    """What was seen on a node."""

    plugins: Sequence[PluginAnswer] = ()
    live_endpoints: frozenset[str] = frozenset()
    """The endpoints of plugins at which a process listens."""
    dead_sockets: Sequence[Path] = ()
    """Sockets in the directory of plugins at which no process listens."""
    claims: Sequence[CheckpointedClaim] | None = None
    """None without a checkpoint."""
    cdi_devices: Mapping[str, Sequence[Path]] | None = None
    """The files that describe each CDI device, by its qualified name; None when no directory can be read."""
    settled_files: frozenset[Path] = frozenset()
    """CDI files that have not changed for a while."""
    faults: Sequence[NodeFinding] = ()
    """What could not be read."""

    @property
    def drivers(self) -> frozenset[str]:
        """The DRA drivers that answer."""
        return frozenset(each.name for each in self.plugins if _is_driver(each))


async def observe_node(paths: NodePaths, now: float) -> NodeObservation:
    """Collect what is on a node; `now` is in seconds since 1970."""
    faults: list[NodeFinding] = []
    claims = _read_claims(paths.checkpoint, faults)
    plugins = await ask_plugins(_read_sockets(paths.registration, faults))
    endpoints = {each.endpoint for each in plugins if _is_driver(each)}
    cdi_devices, settled = _read_cdi(paths.cdi, now, faults)
    return NodeObservation(
        plugins,
        frozenset(endpoint for endpoint in endpoints if is_listening(Path(endpoint))),
        tuple(path for path in _iter_plugin_sockets(paths.plugins) if not is_listening(path)),
        claims,
        cdi_devices,
        settled,
        tuple(faults),
    )


def _is_driver(plugin: PluginAnswer) -> bool:
    return not plugin.error and plugin.type in (DRA_PLUGIN, RESOURCE_PLUGIN)


def _read_claims(path: Path, faults: list[NodeFinding]) -> Sequence[CheckpointedClaim] | None:
    try:
        return read_kubelet_checkpoint(path)
    except DamagedCheckpointError as damaged:
        hint = "the kubelet does not start with it; drain the node, remove the file, restart the kubelet"
        faults.append(
            NodeFinding(NodeCheck.CHECKPOINT, FindingSeverity.ERROR, f"`{path}` is damaged: {damaged}", hint)
        )
    except OSError as error:
        faults.append(_build_unreadable(path, error, NodeCheck.CHECKPOINT))
    return None


def _read_sockets(directory: Path, faults: list[NodeFinding]) -> list[Path]:
    try:
        return list(list_sockets(directory))
    except OSError as error:
        faults.append(_build_unreadable(directory, error, NodeCheck.DIRECTORIES))
        return []


def _iter_plugin_sockets(directory: Path) -> Iterator[Path]:
    """Yield sockets one level below the directory, which is absent on a node that never had a plugin."""
    try:
        yield from list_sockets(directory, depth=1)
    except OSError:
        return


def _build_unreadable(path: Path, error: OSError, check: NodeCheck) -> NodeFinding:
    hint = "run as root on the node, and name the root directory of its kubelet with `--kubelet-dir`"
    return NodeFinding(check, FindingSeverity.ERROR, f"`{path}` cannot be read: {error.strerror}", hint)


def _read_cdi(
    directories: Sequence[Path], now: float, faults: list[NodeFinding]
) -> tuple[Mapping[str, Sequence[Path]] | None, frozenset[Path]]:
    if not any(directory.is_dir() for directory in directories):
        return None, frozenset()
    cache = CdiSpecCache(directories)
    devices = cache.list_devices()
    hint = "container runtimes ignore it: repair or remove it"
    for problem in cache.problems:
        faults.append(NodeFinding(NodeCheck.CDI_FILES, FindingSeverity.ERROR, problem, hint))
    files = {path for paths in devices.values() for path in paths}
    return devices, frozenset(path for path in files if _is_settled(path, now))


def _is_settled(path: Path, now: float) -> bool:
    try:
        return now - path.stat().st_mtime > SETTLE_SECONDS
    except OSError:
        return False


# --- judging ---


def find_problems(seen: NodeObservation) -> list[NodeFinding]:
    """Find everything that is wrong, errors first."""
    found = [
        *seen.faults,
        *_judge_plugins(seen),
        *_judge_cdi_devices(seen),
        *_judge_claims(seen),
        *_judge_leftovers(seen),
    ]
    return sorted(found, key=lambda each: each.severity is not FindingSeverity.ERROR)


def _judge_plugins(seen: NodeObservation) -> Iterator[NodeFinding]:
    for each in seen.plugins:
        if each.error and not each.is_listening:
            hint = "a driver that was killed left it; remove it, or start the driver again"
            yield NodeFinding(
                NodeCheck.SOCKETS, FindingSeverity.WARNING, f"`{each.socket}`: no process listens there", hint
            )
        elif each.error:
            hint = "a kubelet waits for one second; look at the log of the process that listens there"
            yield NodeFinding(
                NodeCheck.SOCKETS, FindingSeverity.ERROR, f"`{each.socket}`: {each.error}", hint
            )
        elif _is_driver(each) and each.endpoint not in seen.live_endpoints:
            hint = "no claim of this driver can be prepared; restart the driver"
            yield NodeFinding(
                NodeCheck.DRIVERS,
                FindingSeverity.ERROR,
                f"driver `{each.name}` is registered, and no process listens at `{each.endpoint}`",
                hint,
            )


def _judge_cdi_devices(seen: NodeObservation) -> Iterator[NodeFinding]:
    for name, paths in (seen.cdi_devices or {}).items():
        # A later directory overrides an earlier one; inside one directory a device may be described once.
        if len({path.parent for path in paths}) < len(paths):
            both = " and ".join(f"`{path}`" for path in paths)
            yield NodeFinding(
                NodeCheck.CDI_FILES,
                FindingSeverity.ERROR,
                f"CDI device `{name}` is described in {both}: no container can use it",
                "remove one of the files",
            )


def _judge_claims(seen: NodeObservation) -> Iterator[NodeFinding]:
    for claim in seen.claims or ():
        for driver in claim.called_drivers:
            if driver not in seen.drivers:
                yield NodeFinding(
                    NodeCheck.CLAIMS,
                    FindingSeverity.ERROR,
                    f"claim {claim.label} is prepared, and its driver `{driver}` is not there",
                    "pods with this claim cannot end until the driver is back; see its DaemonSet",
                )
        for driver, name in claim.iter_cdi_devices():
            if seen.cdi_devices is not None and name not in seen.cdi_devices:
                yield NodeFinding(
                    NodeCheck.CLAIMS,
                    FindingSeverity.ERROR,
                    f"claim {claim.label} has the CDI device `{name}`, which no file describes",
                    f"containers with it cannot start again; restart driver `{driver}`, then the pod",
                )


def _judge_leftovers(seen: NodeObservation) -> Iterator[NodeFinding]:
    if seen.claims is not None:
        alive = {claim.uid for claim in seen.claims}
        stale: dict[Path, str] = {}
        for name, paths in (seen.cdi_devices or {}).items():
            uid = _UID.match(name.partition("=")[2])
            if uid is not None and uid[0] not in alive:
                stale |= {path: uid[0] for path in paths if path in seen.settled_files}
        for path, gone in sorted(stale.items()):
            yield NodeFinding(
                NodeCheck.LEFTOVERS,
                FindingSeverity.WARNING,
                f"`{path}` describes devices of claim {gone}, which is not prepared on this node",
                "drivers of the kit remove such files when they start; otherwise remove it",
            )
    registered = {each.endpoint for each in seen.plugins if not each.error}
    for path in seen.dead_sockets:
        if str(path) not in registered:
            yield NodeFinding(
                NodeCheck.LEFTOVERS,
                FindingSeverity.WARNING,
                f"`{path}`: no process listens there",
                "a driver that was killed left it; remove it when that driver is not installed any more",
            )
