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

from dray.node.plugins.driver_client import PluginRegistration
from dray.node.plugins.driver_replies import sanitize_text
from dray.values.names import check_driver_name
from dray.wire import grpc_services
from dray.wire.grpc_services import OFFERED_SERVICES, GrpcService
from dray.wire.unix_sockets import MAX_SOCKET_PATH_BYTES

_PLAIN_VERSION: Final = re.compile(r"v?\d+\.\d+(\.\d+)?")
_DRA_SERVICES: Final = (grpc_services.DRA_V1, grpc_services.DRA_V1BETA1)
_HEALTH_SERVICES: Final = (
    grpc_services.HEALTH_V1,
    grpc_services.HEALTH_V1BETA1,
    grpc_services.HEALTH_V1ALPHA1,
)
_HEALTH_NAMES: Final = frozenset(
    name for name, service in OFFERED_SERVICES.items() if service in _HEALTH_SERVICES
)


class RegistrationRefusal(NamedTuple):
    """Why a registration will not do."""

    text: str


def validate_registration(
    plugin: Any, socket: Path, allowed_directories: Sequence[Path] = ()
) -> PluginRegistration | RegistrationRefusal:
    """The offer of a driver that registers at `socket`; its endpoint must lie in `allowed_directories`,
    unless empty.
    """
    faults = check_driver_name(plugin.name)
    if faults:
        return RegistrationRefusal(f"`{sanitize_text(plugin.name)}` is no name of a driver: {faults[0].text}")
    spoken = _select_services(plugin)
    if isinstance(spoken, RegistrationRefusal):
        return spoken
    endpoint = Path(plugin.endpoint or socket)
    wrong = _check_endpoint_path(endpoint, allowed_directories) or check_socket(endpoint)
    if wrong:
        return RegistrationRefusal(f"the endpoint of driver `{plugin.name}` will not do: {wrong}")
    health = tuple(service for service in _list_offered(plugin) if service in _HEALTH_SERVICES)
    return PluginRegistration(
        plugin.name, plugin.type == grpc_services.RESOURCE_PLUGIN, spoken, health, str(endpoint)
    )


def _select_services(plugin: Any) -> tuple[GrpcService, ...] | RegistrationRefusal:
    """The services through which claims are prepared, the best first."""
    named = [version for version in plugin.supported_versions if version not in _HEALTH_NAMES]
    plainly = all(_PLAIN_VERSION.fullmatch(version) for version in named)
    if plugin.type == grpc_services.RESOURCE_PLUGIN:
        if plainly or grpc_services.CLASSIC_V1ALPHA1 in _list_offered(plugin):
            return (grpc_services.CLASSIC_V1ALPHA1,)
        return _refuse_services(plugin, (grpc_services.CLASSIC_V1ALPHA1,))
    if plugin.type != grpc_services.DRA_PLUGIN:
        kinds = f"`{grpc_services.DRA_PLUGIN}` and `{grpc_services.RESOURCE_PLUGIN}`"
        return RegistrationRefusal(
            f"the type `{sanitize_text(plugin.type)}` is not served here, only {kinds}"
        )
    found = tuple(service for service in _list_offered(plugin) if service in _DRA_SERVICES)
    if found:
        return found
    return (grpc_services.DRA_V1BETA1,) if named and plainly else _refuse_services(plugin, _DRA_SERVICES)


def _list_offered(plugin: Any) -> tuple[GrpcService, ...]:
    return tuple(service for name, service in OFFERED_SERVICES.items() if name in plugin.supported_versions)


def _refuse_services(plugin: Any, known: Sequence[GrpcService]) -> RegistrationRefusal:
    offered = (
        ", ".join(f"`{sanitize_text(version, 40)}`" for version in plugin.supported_versions[:5]) or "nothing"
    )
    ours = ", ".join(f"`{name}`" for name, service in OFFERED_SERVICES.items() if service in known)
    return RegistrationRefusal(f"driver `{plugin.name}` offers {offered}, and this agent speaks {ours}")


def _check_endpoint_path(endpoint: Path, allowed_directories: Sequence[Path]) -> str:
    if not endpoint.is_absolute() or ".." in endpoint.parts or "\0" in str(endpoint):
        return f"`{sanitize_text(str(endpoint))}` is not an absolute path"
    if allowed_directories and not any(
        _resolve_path(endpoint.parent).is_relative_to(_resolve_path(each)) for each in allowed_directories
    ):
        allowed = " or ".join(f"`{each}`" for each in allowed_directories)
        return f"`{sanitize_text(str(endpoint))}` is not in {allowed}"
    return ""


def _resolve_path(directory: Path) -> Path:
    return Path(os.path.realpath(directory))


def check_socket(path: Path) -> str:
    """Why nobody should be called at a path; empty when it is a socket of ours or of root."""
    shown = sanitize_text(str(path))
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        return f"`{shown}` is longer than a socket's path can be ({MAX_SOCKET_PATH_BYTES} bytes)"
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
