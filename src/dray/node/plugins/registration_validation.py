"""Validation of a plugin's registration: name, type, services and endpoint.

A registration is refused with a message that the driver receives. Old drivers offer plain versions like
`1.0.0` where later ones name services; they all implement DRA v1beta1. The versions of a classic driver need
no interpretation.

Rules for this file: no calls and no state; files are inspected, not changed.
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
    """Why a registration is refused."""

    text: str


def validate_registration(
    plugin: Any, socket: Path, allowed_directories: Sequence[Path] = ()
) -> PluginRegistration | RegistrationRefusal:
    """Validate the registration of a driver at `socket`.

    Its endpoint must lie in one of `allowed_directories`, unless that is empty.
    """
    faults = check_driver_name(plugin.name)
    if faults:
        return RegistrationRefusal(
            f"`{sanitize_text(plugin.name)}` is not a valid driver name: {faults[0].text}"
        )
    services = _select_services(plugin)
    if isinstance(services, RegistrationRefusal):
        return services
    endpoint = Path(plugin.endpoint or socket)
    wrong = _check_endpoint_path(endpoint, allowed_directories) or check_socket(endpoint)
    if wrong:
        return RegistrationRefusal(f"the endpoint of driver `{plugin.name}` cannot be used: {wrong}")
    health = tuple(service for service in _list_offered(plugin) if service in _HEALTH_SERVICES)
    return PluginRegistration(
        plugin.name, plugin.type == grpc_services.RESOURCE_PLUGIN, services, health, str(endpoint)
    )


def _select_services(plugin: Any) -> tuple[GrpcService, ...] | RegistrationRefusal:
    """Select the services that prepare claims, the preferred one first."""
    named = [version for version in plugin.supported_versions if version not in _HEALTH_NAMES]
    plainly = all(_PLAIN_VERSION.fullmatch(version) for version in named)
    if plugin.type == grpc_services.RESOURCE_PLUGIN:
        if plainly or grpc_services.CLASSIC_V1ALPHA1 in _list_offered(plugin):
            return (grpc_services.CLASSIC_V1ALPHA1,)
        return _refuse_services(plugin, (grpc_services.CLASSIC_V1ALPHA1,))
    if plugin.type != grpc_services.DRA_PLUGIN:
        kinds = f"`{grpc_services.DRA_PLUGIN}` and `{grpc_services.RESOURCE_PLUGIN}`"
        return RegistrationRefusal(
            f"plugins of type `{sanitize_text(plugin.type)}` are not supported, only {kinds}"
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
    return RegistrationRefusal(f"driver `{plugin.name}` offers {offered}, and this agent supports {ours}")


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
    """Return why the socket at a path must not be used; empty when this user or root owns it."""
    shown = sanitize_text(str(path))
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        return f"`{shown}` is longer than a socket's path can be ({MAX_SOCKET_PATH_BYTES} bytes)"
    try:
        found = path.lstat()
    except OSError as error:
        return f"`{shown}` cannot be inspected: {error.strerror}"
    if stat.S_ISLNK(found.st_mode):
        return f"`{shown}` is a link, and links are not followed"
    if not stat.S_ISSOCK(found.st_mode):
        return f"`{shown}` is not a socket"
    if found.st_uid not in (os.geteuid(), 0):
        return f"`{shown}` belongs to user {found.st_uid}, neither to this one ({os.geteuid()}) nor to root"
    return ""
