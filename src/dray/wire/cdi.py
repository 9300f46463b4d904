"""CDI specs: files in which a driver describes what a device needs inside a container.

Theory of operation: a spec has one kind (`vendor/class`) and lists devices; each has edits of a container's
configuration, and the spec may have more edits that apply with any of them. A container gets devices by their
qualified names, `vendor/class=name`. Validation reports every problem of a spec at once, each with its field.
A spec is written with the lowest version that has the fields it uses, because older runtimes refuse a later
one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from dray.errors import DrayError

VERSIONS: Final = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0")
HOOK_NAMES: Final = (
    "prestart",
    "createRuntime",
    "createContainer",
    "startContainer",
    "poststart",
    "poststop",
)

_VENDOR: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_CLASS: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?")
_DEVICE: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:-]*[A-Za-z0-9])?")
_VARIABLE: Final = re.compile(r"[^=\0]+=[^\0]*", re.DOTALL)
_PERMISSIONS: Final = frozenset("rwm")
_MAX_DEVICE_NUMBER: Final = 2**32 - 1


class _Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base class of the parts of a spec; unknown members are ignored, as runtimes do."""


class DeviceNode(_Part, frozen=True):
    """A device file of the host, as it appears inside the container."""

    path: str = ""
    host_path: str = ""
    type: str = ""
    """`b`, `c`, `u` or `p`; when empty, the type of the host's file."""
    major: int = 0
    minor: int = 0
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


class Mount(_Part, frozen=True):
    """A file or directory of the host that is mounted into the container."""

    host_path: str = ""
    container_path: str = ""
    options: tuple[str, ...] = ()
    type: str = ""


class Hook(_Part, frozen=True):
    """A program that the runtime runs at a point of a container's lifecycle."""

    hook_name: str = ""
    path: str = ""
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


class ContainerEdits(_Part, frozen=True):
    """Changes of a container's configuration."""

    env: tuple[str, ...] = ()
    """Each is `NAME=value`."""
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: tuple[int, ...] = msgspec.field(default=(), name="additionalGids")

    def __or__(self, other: ContainerEdits) -> ContainerEdits:
        """Combine edits: these first, then the others."""
        return ContainerEdits(
            env=self.env + other.env,
            device_nodes=self.device_nodes + other.device_nodes,
            mounts=self.mounts + other.mounts,
            hooks=self.hooks + other.hooks,
            additional_gids=self.additional_gids + other.additional_gids,
        )

    def __bool__(self) -> bool:
        return self != _NONE


_NONE: Final = ContainerEdits()


class CdiDevice(_Part, frozen=True):
    """One device of a spec."""

    name: str = ""
    annotations: dict[str, str] = {}
    container_edits: ContainerEdits = ContainerEdits()


class CdiSpec(_Part, frozen=True):
    """One CDI spec file."""

    cdi_version: str = ""
    kind: str = ""
    annotations: dict[str, str] = {}
    devices: tuple[CdiDevice, ...] = ()
    container_edits: ContainerEdits = ContainerEdits()


class CdiSpecError(DrayError):
    """A spec that no runtime accepts, with everything that is wrong with it."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class QualifiedDeviceName(NamedTuple):
    """The qualified name of a device: kind and name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}={self.name}"


def parse_qualified_name(text: str) -> QualifiedDeviceName:
    """Parse a name `vendor/class=device`; raises `ValueError` with what is wrong."""
    kind, equals, name = text.partition("=")
    problem = _describe_kind_problem(kind)
    if not equals or problem:
        raise ValueError(f"`{text}` is no name of a CDI device: expected `vendor/class=device`")
    if not _DEVICE.fullmatch(name):
        raise ValueError(f"`{text}`: a device is named with letters, digits and `_ - . :`")
    return QualifiedDeviceName(kind, name)


def _describe_kind_problem(kind: str) -> str:
    vendor, slash, klass = kind.partition("/")
    if slash and _VENDOR.fullmatch(vendor) and _CLASS.fullmatch(klass):
        return ""
    return f"kind: `{kind}` is not `vendor/class`, for example `gpu.example.com/gpu`"


def parse_spec(content: bytes) -> CdiSpec:
    """Parse a spec from JSON; raises `CdiSpecError`."""
    try:
        spec = msgspec.json.decode(content, type=CdiSpec)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as broken:
        raise CdiSpecError((f"not a CDI spec: {broken}",)) from None
    problems = tuple(find_spec_problems(spec))
    if problems:
        raise CdiSpecError(problems)
    return spec


def serialize_spec(spec: CdiSpec) -> bytes:
    """Serialize a spec as JSON, with the lowest version that has the fields it uses."""
    spec = msgspec.structs.replace(spec, cdi_version=get_minimum_version(spec))
    problems = tuple(find_spec_problems(spec))
    if problems:
        raise CdiSpecError(problems)
    return msgspec.json.format(msgspec.json.encode(spec), indent=2) + b"\n"


def get_minimum_version(spec: CdiSpec) -> str:
    """Return the lowest version of CDI that has every field a spec uses."""
    edits = [spec.container_edits, *(device.container_edits for device in spec.devices)]
    names = [device.name for device in spec.devices]
    if any(each.additional_gids for each in edits):
        return "0.7.0"
    if (
        spec.annotations
        or any(device.annotations for device in spec.devices)
        or "." in _get_device_class(spec.kind)
    ):
        return "0.6.0"
    if any(name[:1].isdigit() for name in names) or any(
        node.host_path for each in edits for node in each.device_nodes
    ):
        return "0.5.0"
    if any(mount.type for each in edits for mount in each.mounts):
        return "0.4.0"
    return VERSIONS[0]


def _get_device_class(kind: str) -> str:
    return kind.partition("/")[2]


def find_spec_problems(spec: CdiSpec) -> Iterator[str]:
    """List everything that is wrong with a spec, each problem with its field."""
    if spec.cdi_version not in VERSIONS:
        yield f"cdiVersion: `{spec.cdi_version}` is not one of {', '.join(VERSIONS)}"
    problem = _describe_kind_problem(spec.kind)
    if problem:
        yield problem
    if not spec.devices:
        yield "devices: expected at least one"
    seen: set[str] = set()
    for position, device in enumerate(spec.devices):
        place = f"devices[{position}]"
        if not _DEVICE.fullmatch(device.name):
            yield f"{place}.name: `{device.name}` is not made of letters, digits and `_ - . :`"
        if device.name in seen:
            yield f"{place}.name: `{device.name}` is there twice"
        seen.add(device.name)
        yield from _find_edits_problems(device.container_edits, f"{place}.containerEdits")
    yield from _find_edits_problems(spec.container_edits, "containerEdits")


def _find_edits_problems(edits: ContainerEdits, location: str) -> Iterator[str]:
    for position, text in enumerate(edits.env):
        if not _VARIABLE.fullmatch(text):
            yield f"{location}.env[{position}]: expected `NAME=value`, got `{text}`"
    for position, node in enumerate(edits.device_nodes):
        yield from _find_device_node_problems(node, f"{location}.deviceNodes[{position}]")
    for position, mount in enumerate(edits.mounts):
        for name, path in (("hostPath", mount.host_path), ("containerPath", mount.container_path)):
            if not path or "\0" in path:
                yield f"{location}.mounts[{position}].{name}: expected a path, got `{path}`"
    for position, hook in enumerate(edits.hooks):
        yield from _find_hook_problems(hook, f"{location}.hooks[{position}]")


def _find_device_node_problems(node: DeviceNode, location: str) -> Iterator[str]:
    if not node.path:
        yield f"{location}.path: expected the path inside the container"
    if node.type not in ("", "b", "c", "u", "p"):
        yield f"{location}.type: `{node.type}` is not one of b, c, u, p"
    for name, number in (("major", node.major), ("minor", node.minor)):
        if not 0 <= number <= _MAX_DEVICE_NUMBER:
            yield f"{location}.{name}: `{number}` is no number of a device"
    if not _PERMISSIONS.issuperset(node.permissions):
        yield f"{location}.permissions: `{node.permissions}` has more than r, w and m"


def _find_hook_problems(hook: Hook, location: str) -> Iterator[str]:
    if hook.hook_name not in HOOK_NAMES:
        yield f"{location}.hookName: `{hook.hook_name}` is not one of {', '.join(HOOK_NAMES)}"
    if not hook.path.startswith("/"):
        yield f"{location}.path: expected an absolute path, got `{hook.path}`"
    for position, text in enumerate(hook.env):
        if not _VARIABLE.fullmatch(text):
            yield f"{location}.env[{position}]: expected `NAME=value`, got `{text}`"
