"""What a driver says about itself when it registers, and whether that will do.

A registration that will not do is refused with a sentence, which the driver gets to read. Old drivers offer
plain versions like `1.0.0` where later ones name services; they all spoke DRA v1beta1. A classic driver
offers nothing that we need to know.

Rules for this file: nothing is called and nothing is kept; the files at a path are looked at and not touched.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from dray.node.plugins.driver_client import Offer
from dray.node.plugins.driver_replies import plain
from dray.values.names import driver_name
from dray.wire import grpc_services
from dray.wire.grpc_services import OFFERED, Service
from dray.wire.unix_sockets import LONGEST

_PLAIN_VERSION: Final = re.compile(r"v?\d+\.\d+(\.\d+)?")
_DRA: Final = (grpc_services.DRA_V1, grpc_services.DRA_V1BETA1)
_HEALTH: Final = (grpc_services.HEALTH_V1, grpc_services.HEALTH_V1BETA1, grpc_services.HEALTH_V1ALPHA1)
_HEALTH_NAMES: Final = frozenset(name for name, service in OFFERED.items() if service in _HEALTH)


class Refused(NamedTuple):
    """Why a registration will not do."""

    text: str


def judged(said: Any, socket: Path, inside: Sequence[Path] = ()) -> Offer | Refused:
    """The offer of a driver that registers at `socket`; its endpoint must lie in `inside`, unless empty."""
    faults = driver_name(said.name)
    if faults:
        return Refused(f"`{plain(said.name)}` is no name of a driver: {faults[0].text}")
    spoken = _spoken(said)
    if isinstance(spoken, Refused):
        return spoken
    endpoint = Path(said.endpoint or socket)
    wrong = _misplaced(endpoint, inside) or unfit(endpoint)
    if wrong:
        return Refused(f"the endpoint of driver `{said.name}` will not do: {wrong}")
    health = tuple(service for service in _offered(said) if service in _HEALTH)
    return Offer(said.name, said.type == grpc_services.RESOURCE_PLUGIN, spoken, health, str(endpoint))


def _spoken(said: Any) -> tuple[Service, ...] | Refused:
    """The services through which claims are prepared, the best first."""
    named = [version for version in said.supported_versions if version not in _HEALTH_NAMES]
    plainly = all(_PLAIN_VERSION.fullmatch(version) for version in named)
    if said.type == grpc_services.RESOURCE_PLUGIN:
        if plainly or grpc_services.CLASSIC in _offered(said):
            return (grpc_services.CLASSIC,)
        return _unspoken(said, (grpc_services.CLASSIC,))
    if said.type != grpc_services.DRA_PLUGIN:
        kinds = f"`{grpc_services.DRA_PLUGIN}` and `{grpc_services.RESOURCE_PLUGIN}`"
        return Refused(f"the type `{plain(said.type)}` is not served here, only {kinds}")
    found = tuple(service for service in _offered(said) if service in _DRA)
    if found:
        return found
    return (grpc_services.DRA_V1BETA1,) if named and plainly else _unspoken(said, _DRA)


def _offered(said: Any) -> tuple[Service, ...]:
    return tuple(service for name, service in OFFERED.items() if name in said.supported_versions)


def _unspoken(said: Any, known: Sequence[Service]) -> Refused:
    offered = ", ".join(f"`{plain(version, 40)}`" for version in said.supported_versions[:5]) or "nothing"
    ours = ", ".join(f"`{name}`" for name, service in OFFERED.items() if service in known)
    return Refused(f"driver `{said.name}` offers {offered}, and this agent speaks {ours}")


def _misplaced(endpoint: Path, inside: Sequence[Path]) -> str:
    if not endpoint.is_absolute() or ".." in endpoint.parts or "\0" in str(endpoint):
        return f"`{plain(str(endpoint))}` is not an absolute path"
    if inside and not any(_real(endpoint.parent).is_relative_to(_real(each)) for each in inside):
        allowed = " or ".join(f"`{each}`" for each in inside)
        return f"`{plain(str(endpoint))}` is not in {allowed}"
    return ""


def _real(directory: Path) -> Path:
    return Path(os.path.realpath(directory))


def unfit(path: Path) -> str:
    """Why nobody should be called at a path; empty when it is a socket of ours or of root."""
    shown = plain(str(path))
    if len(os.fsencode(path)) > LONGEST:
        return f"`{shown}` is longer than a socket's path can be ({LONGEST} bytes)"
    try:
        seen = path.lstat()
    except OSError as failed:
        return f"`{shown}` cannot be looked at: {failed.strerror}"
    if stat.S_ISLNK(seen.st_mode):
        return f"`{shown}` is a link, and links are not followed"
    if not stat.S_ISSOCK(seen.st_mode):
        return f"`{shown}` is not a socket"
    if seen.st_uid not in (os.geteuid(), 0):
        return f"`{shown}` belongs to user {seen.st_uid}, neither to this one ({os.geteuid()}) nor to root"
    return ""
