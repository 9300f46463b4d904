"""The few fields of stored objects that the checks read, decoded independently of the code under test."""

from __future__ import annotations

import msgspec


class _Read(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Base: unknown fields are skipped."""


class ReadMeta(_Read, frozen=True, gc=False):
    """Metadata of an object."""

    name: str
    uid: str
    namespace: str = ""
    finalizers: tuple[str, ...] = ()
    deletion_timestamp: str | None = None


class ReadResult(_Read, frozen=True, gc=False):
    """A device, or a share of it, that a claim has."""

    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, str] = {}


class _ReadDevices(_Read, frozen=True, gc=False):
    results: tuple[ReadResult, ...] = ()


class _ReadAllocation(_Read, frozen=True, gc=False):
    devices: _ReadDevices = _ReadDevices()


class ReadConsumer(_Read, frozen=True, gc=False):
    """A pod that may use a claim."""

    uid: str


class _ReadClaimStatus(_Read, frozen=True, gc=False):
    allocation: _ReadAllocation | None = None
    reserved_for: tuple[ReadConsumer, ...] = ()


class _ReadExact(_Read, frozen=True, gc=False):
    device_class_name: str
    count: int = 1


class _ReadRequest(_Read, frozen=True, gc=False):
    exactly: _ReadExact | None = None
    first_available: tuple[_ReadExact, ...] = ()


class _ReadRequests(_Read, frozen=True, gc=False):
    requests: tuple[_ReadRequest, ...] = ()


class _ReadClaimSpec(_Read, frozen=True, gc=False):
    devices: _ReadRequests = _ReadRequests()


class ReadClaim(_Read, frozen=True, gc=False):
    """A claim."""

    metadata: ReadMeta
    spec: _ReadClaimSpec = _ReadClaimSpec()
    status: _ReadClaimStatus = _ReadClaimStatus()

    @property
    def results(self) -> tuple[ReadResult, ...]:
        """The devices it has."""
        return () if self.status.allocation is None else self.status.allocation.devices.results

    def count_gpus(self) -> int:
        """Count the whole devices it asks for at most."""
        total = 0
        for request in self.spec.devices.requests:
            asked = request.first_available if request.exactly is None else (request.exactly,)
            total += max((each.count for each in asked if each.device_class_name == "gpu"), default=0)
        return total


class ReadPodClaim(_Read, frozen=True, gc=False):
    """A claim of a pod, by its name if that is known."""

    name: str
    resource_claim_name: str | None = None


class _ReadPodSpec(_Read, frozen=True, gc=False):
    node_name: str = ""
    resource_claims: tuple[ReadPodClaim, ...] = ()


class ReadCondition(_Read, frozen=True, gc=False):
    """A condition of a pod."""

    type: str
    status: str
    message: str = ""


class _ReadPodStatus(_Read, frozen=True, gc=False):
    phase: str = ""
    resource_claim_statuses: tuple[ReadPodClaim, ...] = ()
    conditions: tuple[ReadCondition, ...] = ()


class ReadPod(_Read, frozen=True, gc=False):
    """A pod."""

    metadata: ReadMeta
    spec: _ReadPodSpec = _ReadPodSpec()
    status: _ReadPodStatus = _ReadPodStatus()

    def list_claim_names(self) -> list[str]:
        """List the names of its claims, as far as they are known."""
        made = {each.name: each.resource_claim_name for each in self.status.resource_claim_statuses}
        names = (each.resource_claim_name or made.get(each.name) for each in self.spec.resource_claims)
        return [name for name in names if name]


class _ReadHolder(_Read, frozen=True, gc=False):
    uid: str = ""


class ReadHolding(_Read, frozen=True, gc=False):
    """Who has a device according to the ledger."""

    holder: _ReadHolder
    gone: bool = False


class ReadRow(_Read, frozen=True, gc=False):
    """A row of the ledger about a device."""

    holdings: tuple[ReadHolding, ...] = ()


CLAIMS = msgspec.json.Decoder(ReadClaim)
PODS = msgspec.json.Decoder(ReadPod)
ROWS = msgspec.json.Decoder(ReadRow)
