"""The directories of the agent that a driver serves: which of several, when they are not given.

Theory of operation: drivers meet their agent in two directories, `plugins` and `plugins_registry`, below the
root directory of a kubelet or of an agent of dray. In the wrong ones a driver waits for an agent that never
comes, or serves another cluster than the one it publishes to. Manifests name the directories. A program that
is started by hand looks for the root directories that are there, in their default places: one is used, and
several are an error, because only a person knows which agent is meant.

Rules for this file: nothing is created or connected to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dray.errors import InputError

KUBELET_DIR: Final = Path("/var/lib/kubelet")
CDI_DIR: Final = Path("/var/run/cdi")
PLUGINS_SUBDIR: Final = "plugins"
REGISTRY_SUBDIR: Final = "plugins_registry"
_AGENT_ROOT: Final = Path("dray-node")
"""The default of `dray node --root`."""
_NODE_ROOTS: Final = Path("dray-data", "nodes")
"""Where `dray up` has the agents of its nodes."""


@dataclass(frozen=True, slots=True)
class AgentRoot:
    """The root directory of an agent."""

    path: Path
    what: str
    """Whose it is, for messages."""
    cdi: Path = CDI_DIR
    """Where its container runtime looks for CDI files."""


@dataclass(frozen=True, slots=True)
class GivenDirectories:
    """The directories that options and environment variables name; None where they name nothing."""

    root: Path | None = None
    plugins: Path | None = None
    registry: Path | None = None
    cdi: Path | None = None


@dataclass(frozen=True, slots=True)
class AgentDirectories:
    """The directories that a driver uses."""

    plugins: Path
    registry: Path
    cdi: Path


def find_agent_roots(node: str, directory: Path, kubelet_dir: Path) -> Iterator[AgentRoot]:
    """Yield the agents that may run the node: local ones below a working directory, and a kubelet."""
    local = (
        AgentRoot(directory / _AGENT_ROOT, "of `dray node`"),
        AgentRoot(directory / _NODE_ROOTS / node, "of `dray up`", directory / _NODE_ROOTS / node / "cdi"),
    )
    yield from (each for each in local if (each.path / REGISTRY_SUBDIR).is_dir())
    if (kubelet_dir / REGISTRY_SUBDIR).is_dir():
        yield AgentRoot(kubelet_dir, "of a kubelet")


def choose_directories(given: GivenDirectories, found: Sequence[AgentRoot]) -> AgentDirectories:
    """Choose the directories; raises `InputError` when several agents were found and none is named.

    With no agent found, those of a kubelet are used: one may be installed later.
    """
    if given.root is not None:
        root = AgentRoot(given.root, "")
    elif given.plugins is not None and given.registry is not None:
        return AgentDirectories(given.plugins, given.registry, given.cdi or CDI_DIR)
    elif len(found) > 1:
        raise InputError(_format_choices(found))
    else:
        root = found[0] if found else AgentRoot(KUBELET_DIR, "")
    return AgentDirectories(
        given.plugins or root.path / PLUGINS_SUBDIR,
        given.registry or root.path / REGISTRY_SUBDIR,
        given.cdi or root.cdi,
    )


def _format_choices(found: Sequence[AgentRoot]) -> str:
    names = " and ".join(f"`{each.path}` ({each.what})" for each in found)
    flags = " or ".join(f"`--kubelet-dir {each.path}`" for each in found)
    return (
        f"which agent is this driver for? There are the directories {names}; choose one with {flags}, "
        "or name the directories with `--plugins` and `--plugins-registry`"
    )
