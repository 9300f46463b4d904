"""What a driver's author sees: the class to write, the claims that come, the answers that go.

Theory of operation: a driver says which devices there are, makes them ready for a claim and takes them back.
Everything else (sockets, registration, publishing, checkpoints, CDI files, retries, two calls at once) is the
kit's. `prepare` should do little: what can fail belongs where devices are told or allocated. It may be called
again for a claim after a crash, and `unprepare` after a `prepare` that never ended or never began; both must
then do what is left to do.

Rules for this file: shapes only; who calls them is in `running` and `work`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from types import NoneType
from typing import Any, ClassVar, Final, TypeAlias

from dray.api.meta import Condition
from dray.api.resource import Device, NetworkDeviceData
from dray.driver.devices import Pool
from dray.errors import InputError
from dray.values.quantity import Quantity
from dray.wire.cdi import DeviceNode, Hook, Mount

Schema: TypeAlias = Any
"""A type that msgspec can read: usually a struct, `dict[str, str]`, or `dict` for anything."""
Parameters: TypeAlias = Schema | Mapping[str, Schema] | None
"""One schema, or schemas by the `kind` that parameters say they are, or none: nothing is accepted then."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One piece of configuration for a device, as its schema decoded it."""

    source: str
    """`class` or `claim`."""
    parameters: Any
    written: bytes = field(default=b"", repr=False, compare=False)
    """The same as it was written, in JSON."""


@dataclass(frozen=True, slots=True)
class Got:
    """One device, or a share of one, that a claim got from this driver."""

    request: str
    """The name of the request in the claim."""
    pool: str
    device: str
    subrequest: str = ""
    """Which alternative of the request it was, where it had some."""
    share_id: str = ""
    consumed: Mapping[str, Quantity] = field(default_factory=dict, hash=False)
    """How much of each capacity is this share's."""
    admin: bool = False
    """Access for an administrator: others may be using the device."""
    config: tuple[Setting, ...] = field(default=(), hash=False)
    """What applies to it, that of the class before that of the claim."""

    @property
    def parameters(self) -> Any:
        """The configuration that counts: the claim's, else the class's, the last one of each; else None."""
        return self.config[-1].parameters if self.config else None


@dataclass(frozen=True, slots=True)
class Consumer:
    """Who a claim is reserved for: usually a pod."""

    name: str
    uid: str
    resource: str = "pods"


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim with the devices it got from this driver."""

    namespace: str
    name: str
    uid: str
    devices: tuple[Got, ...] = ()
    reserved_for: tuple[Consumer, ...] = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ClassicClaim:
    """A claim of `cdi.k8s.io` that the driver's controller allocated, with what it wrote about it."""

    namespace: str
    name: str
    uid: str
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """`status.attributes`: what the controller wants the node to know."""
    parameters: Any = None
    """`spec.parameters`, decoded by the driver's schema when it has one."""
    written: bytes = field(default=b"", repr=False, compare=False)
    """The same as they were written, in JSON."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """What a driver reports about a device in the claim."""

    conditions: Sequence[Condition] = ()
    data: Any = None
    """Any object, up to 10 KiB of JSON."""
    network: NetworkDeviceData | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """A device that is ready, with what containers that use it need.

    `mounts` may be written as `host:container[:options]`, `device_nodes` as the path of a device file. `cdi`
    names devices of CDI files that somebody else wrote. A classic driver leaves `got` out.
    """

    got: Got | None = None
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    mounts: Sequence[Mount | str] = ()
    device_nodes: Sequence[DeviceNode | str | PathLike[str]] = ()
    hooks: Sequence[Hook] = ()
    cdi: Sequence[str] = ()
    status: DeviceStatus | None = None

    def __post_init__(self) -> None:
        for name, kinds, several in _READY_FIELD_TYPES:
            given: Any = getattr(self, name)
            if several and isinstance(given, str | Mapping):
                raise InputError(f"Ready({name}=...): expected a list, got `{given!r}`")
            for each in given if several else (given,):
                if not isinstance(each, kinds):
                    expected = " or ".join(f"`{kind.__name__}`" for kind in kinds)
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
)
"""What an author may say that is ready: which types, and whether it is a list of them."""


@dataclass(frozen=True, slots=True)
class DeviceState:
    """How a device is."""

    device: str
    healthy: bool | None
    """None: nobody knows."""
    message: str = ""
    pool: str = ""
    """Empty: the node's own pool."""
    timeout_seconds: int = 0
    """For how long this holds without being told again; 0: as the agent decides."""


class Driver:
    """Base of drivers. A driver sets `name` and says what `devices` there are; the rest has defaults.

    `devices`, `prepare`, `unprepare` and `health` may be plain methods, which run in a thread, or `async`
    ones. `prepare` and `unprepare` of different claims run at the same time, never of the same claim.
    """

    name: ClassVar[str] = ""
    """The driver's name, a DNS subdomain: `gpu.example.com`."""
    parameters: ClassVar[Parameters] = None
    """What opaque parameters in claims and classes must look like."""
    refresh_seconds: ClassVar[float] = 60.0
    """How often `devices` is asked again without `changed`."""
    health_seconds: ClassVar[float] = 5.0
    """How often `health` is asked while somebody listens."""

    node: str = ""
    """The node this driver runs on; set before anything is asked."""
    _listener: Callable[[], None] | None = None

    def devices(self) -> Iterable[Device | Pool] | Awaitable[Iterable[Device | Pool]]:
        """The devices there are, in the order in which they should be given out."""
        return ()

    def prepare(self, claim: Any) -> Iterable[Ready] | Awaitable[Iterable[Ready]]:
        """Make the devices of a claim ready, and say what containers need for them."""
        return [Ready(got) for got in claim.devices]

    def unprepare(self, claim: Any) -> Awaitable[None] | None:
        """Take the devices of a claim back: the claim as it was prepared, though it may be gone by now."""
        return None

    def changed(self) -> None:
        """Tell the kit that devices or their health are others now. May be called from any thread."""
        if self._listener is not None:
            self._listener()

    def set_change_listener(self, listener: Callable[[], None] | None) -> None:
        """For the kit: whom `changed` calls."""
        self._listener = listener


class HealthyDriver(Driver):
    """A driver that tells how its devices are; any driver with a method of this name does."""

    def health(self) -> Iterable[DeviceState] | Awaitable[Iterable[DeviceState]]:
        """How devices are. Those that are not mentioned are healthy or unknown, as nobody can tell."""
        return ()


class ClassicDriver(Driver):
    """Base of drivers for claims of `cdi.k8s.io`, which their own controller allocates.

    `prepare` and `unprepare` get a `ClassicClaim`; there is nothing to publish.
    """

    controller: ClassVar[type[Any] | None] = None
    """The driver's `ClassicController`, which the command `controller` runs."""

    def prepare(self, claim: ClassicClaim) -> Iterable[Ready] | Awaitable[Iterable[Ready]]:
        """Make what was allocated ready, and say what containers need for it."""
        return [Ready()]
