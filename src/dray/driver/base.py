"""The base classes of drivers, and the values that authors get and return: claims, devices, results.

Theory of operation: a driver lists its devices, prepares them for a claim and unprepares them. The kit does
everything else: sockets, registration, publishing, checkpoints, CDI files, retries, concurrent calls.
`prepare` should do little: what can fail belongs into `devices` or the allocation. The kit may call it again
for a claim after a crash, and `unprepare` after a `prepare` that never ended or never began; both must then
do what is left to do.

Rules for this file: only classes; `service` and `preparing` call them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from types import NoneType
from typing import Any, ClassVar, Final, TypeAlias

from dray.api.meta import Condition
from dray.api.resource import Device, NetworkDeviceData
from dray.driver.devices import Attribute, Pool
from dray.errors import DrayError, InputError
from dray.values.quantity import Quantity
from dray.wire.cdi import DeviceNode, Hook, Mount

Schema: TypeAlias = Any
"""A type that msgspec can decode: usually a struct, `dict[str, str]`, or `dict` for anything."""
Parameters: TypeAlias = Schema | Mapping[str, Schema] | None
"""One schema, or schemas by the `kind` of the parameters, or none: then no parameters are accepted."""


class TryAgainError(DrayError):
    """Raised by an author's `prepare` when it cannot succeed now and may soon: a device that is being reset.

    The kit calls `prepare` again while the agent waits, for up to 30 seconds. Any other exception fails the
    call at once, and agents call again much later.
    """


@dataclass(frozen=True, slots=True)
class Setting:
    """One piece of configuration for a device, as its schema decoded it."""

    source: str
    """`class` or `claim`."""
    parameters: Any
    written: bytes = field(default=b"", repr=False, compare=False)
    """The parameters as they were written, in JSON."""


@dataclass(frozen=True, slots=True)
class Got:
    """One device, or a share of one, that is allocated to a claim."""

    request: str
    """The name of the request in the claim."""
    pool: str
    device: str
    subrequest: str = ""
    """The alternative of the request that was allocated, if it has alternatives."""
    share_id: str = ""
    consumed: Mapping[str, Quantity] = field(default_factory=dict, hash=False)
    """How much of each capacity this share consumes."""
    admin: bool = False
    """Whether this is admin access: other claims may use the device."""
    config: tuple[Setting, ...] = field(default=(), hash=False)
    """The configuration for the device, that of the class before that of the claim."""

    @property
    def parameters(self) -> Any:
        """The effective parameters: the claim's, else the class's, the last one of each; else None."""
        return self.config[-1].parameters if self.config else None


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer that a claim is reserved for: usually a pod."""

    name: str
    uid: str
    resource: str = "pods"


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim with its devices of this driver."""

    namespace: str
    name: str
    uid: str
    devices: tuple[Got, ...] = ()
    reserved_for: tuple[Consumer, ...] = ()
    pod_claim: str = ""
    """The entry of the pod, `spec.resourceClaims[].name`, whose template made the claim; else empty."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ClassicClaim:
    """A claim of `cdi.k8s.io` that the driver's controller allocated, with the attributes it wrote."""

    namespace: str
    name: str
    uid: str
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """`status.attributes`, which the controller writes for the driver on the node."""
    parameters: Any = None
    """`spec.parameters`, decoded by the driver's schema when it has one."""
    written: bytes = field(default=b"", repr=False, compare=False)
    """The parameters as they were written, in JSON."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """What a driver reports about a device, for the claim's status."""

    conditions: Sequence[Condition] = ()
    data: Any = None
    """Any object, up to 10 KiB of JSON."""
    network: NetworkDeviceData | None = None


@dataclass(frozen=True, slots=True)
class DeviceMetadata:
    """What containers can read about a device besides its published attributes (KEP-5304)."""

    attributes: Mapping[str, Attribute] = field(default_factory=dict, hash=False)
    """Attributes that are known only now, or not published; they replace published ones of the same name."""
    network: NetworkDeviceData | None = None
    """That of the device's status when not given."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A prepared device, with the edits for containers that use it.

    `mounts` may be written as `host:container[:options]`, `device_nodes` as the path of a device file. `cdi`
    names devices of CDI files that the kit does not write. A classic driver leaves `got` out.
    """

    got: Got | None = None
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    mounts: Sequence[Mount | str] = ()
    device_nodes: Sequence[DeviceNode | str | PathLike[str]] = ()
    hooks: Sequence[Hook] = ()
    cdi: Sequence[str] = ()
    status: DeviceStatus | None = None
    metadata: DeviceMetadata | None = None
    """More for the device metadata file, in drivers with `device_metadata`."""

    def __post_init__(self) -> None:
        for name, types, is_list in _READY_FIELD_TYPES:
            value: Any = getattr(self, name)
            if is_list and isinstance(value, str | Mapping):
                raise InputError(f"Ready({name}=...): expected a list, got `{value!r}`")
            for each in value if is_list else (value,):
                if not isinstance(each, types):
                    expected = " or ".join(f"`{each_type.__name__}`" for each_type in types)
                    raise InputError(f"Ready({name}=...): expected {expected}, got `{each!r}`")
        for name in self.env:
            if not name or "=" in name:
                raise InputError(f"Ready(env=...): `{name}` is no name of a variable")


_READY_FIELD_TYPES: Final[tuple[tuple[str, tuple[type, ...], bool], ...]] = (
    ("got", (Got, NoneType), False),
    ("env", (Mapping,), False),
    ("mounts", (Mount, str), True),
    ("device_nodes", (DeviceNode, str, PathLike), True),
    ("hooks", (Hook,), True),
    ("cdi", (str,), True),
    ("status", (DeviceStatus, NoneType), False),
    ("metadata", (DeviceMetadata, NoneType), False),
)
"""The types of each field of `Ready`, and whether it is a list of them."""


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The health of a device."""

    device: str
    healthy: bool | None
    """None: unknown."""
    message: str = ""
    pool: str = ""
    """Empty: the node's own pool."""
    timeout_seconds: int = 0
    """How long the state is valid without an update; 0: as the agent decides."""


class Driver:
    """Base of drivers. A driver sets `name` and lists its `devices`; everything else has defaults.

    `devices`, `prepare`, `unprepare` and `health` may be plain methods, which run in a thread, or `async`
    ones. `prepare` and `unprepare` of different claims run at the same time, never of the same claim.
    """

    name: ClassVar[str] = ""
    """The driver's name, a DNS subdomain: `gpu.example.com`."""
    parameters: ClassVar[Parameters] = None
    """The schema of opaque parameters in claims and classes."""
    refresh_seconds: ClassVar[float] = 60.0
    """How often `devices` is called again without `changed`."""
    health_seconds: ClassVar[float] = 5.0
    """How often `health` is called while an agent has a health stream open."""
    device_metadata: ClassVar[bool] = False
    """Whether containers get a file with the attributes of their devices (KEP-5304)."""

    node: str = ""
    """The node this driver runs on; set before any method is called."""
    _listener: Callable[[], None] | None = None
    _metadata_updater: Callable[[Claim, Got, DeviceMetadata], None] | None = None

    def devices(self) -> Iterable[Device | Pool] | Awaitable[Iterable[Device | Pool]]:
        """Return the devices, in the order in which they should be allocated."""
        return ()

    def prepare(self, claim: Any) -> Iterable[Ready] | Awaitable[Iterable[Ready]]:
        """Prepare the devices of a claim, and return what containers need for them."""
        return [Ready(got) for got in claim.devices]

    def unprepare(self, claim: Any) -> Awaitable[None] | None:
        """Undo `prepare`: the claim is as it was prepared, though it may be deleted by now."""
        return None

    def changed(self) -> None:
        """Notify the kit that devices or their health changed. May be called from any thread."""
        if self._listener is not None:
            self._listener()

    def update_metadata(self, claim: Claim, got: Got, metadata: DeviceMetadata) -> None:
        """Change what containers that start from now on read about a device of a prepared claim.

        May be called from any thread. Raises `InputError` when the claim is not prepared.
        """
        if self._metadata_updater is None:
            raise InputError("`update_metadata` needs `device_metadata = True`, and a driver that runs")
        self._metadata_updater(claim, got, metadata)

    def set_metadata_updater(self, updater: Callable[[Claim, Got, DeviceMetadata], None] | None) -> None:
        """Set the function that `update_metadata` calls; for the kit only."""
        self._metadata_updater = updater

    def set_change_listener(self, listener: Callable[[], None] | None) -> None:
        """Set the function that `changed` calls; for the kit only."""
        self._listener = listener


class HealthyDriver(Driver):
    """A driver that reports the health of its devices; every driver with a method `health` does."""

    def health(self) -> Iterable[DeviceState] | Awaitable[Iterable[DeviceState]]:
        """Return the health of devices; that of a device that is not mentioned is unknown."""
        return ()


class ClassicDriver(Driver):
    """Base of drivers for claims of `cdi.k8s.io`, which their own controller allocates.

    `prepare` and `unprepare` get a `ClassicClaim`; nothing is published.
    """

    controller: ClassVar[type[Any] | None] = None
    """The driver's `ClassicController`, which the command `controller` runs."""

    def prepare(self, claim: ClassicClaim) -> Iterable[Ready] | Awaitable[Iterable[Ready]]:
        """Prepare what was allocated, and return what containers need for it."""
        return [Ready()]
