"""Drivers that are wrong in one way each, by the check that should find it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from dray.api.resource import ResourceClaim
from dray.client.errors import NotFoundError
from dray.wire import grpc_services
from tests.unit.driver.conformance.reference_driver import Plain


class Stranger(Plain):
    """A plugin that is no DRA driver."""

    type = "CSIPlugin"


class OffersNothing(Plain):
    offered = ("1.0.0",)


class OffersTooMuch(Plain):
    served = (grpc_services.DRA_V1,)


class OffersTooLittle(Plain):
    offered = ("v1.DRAPlugin",)


class RefusesRegistration(Plain):
    async def notified(self, _: Any) -> Any:
        raise ValueError("once is enough")


class Anything(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers every call that no other handler answers."""

    def service(self, _: Any) -> Any:
        async def nothing(_request: bytes, _context: Any) -> bytes:
            return b""

        return grpc.unary_unary_rpc_method_handler(nothing)


class SaysYesToAll(Plain):
    def handlers(self) -> list[Any]:
        return [*super().handlers(), Anything()]


class HealthFails(Plain):
    async def health(self, _: Any) -> AsyncIterator[Any]:
        if self.offered:
            raise ValueError("the monitor is broken")
        yield


class SaysNothing(Plain):
    async def health(self, _: Any) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield


class IllOfNothing(Plain):
    def healthy_device(self) -> str:
        return "dev-99"


class AnotherDevice(Plain):
    def made(self, uid: str, result: Any) -> dict[str, Any]:
        return super().made(uid, result) | {"device_name": "dev-9"}


class WrongRequest(Plain):
    def made(self, uid: str, result: Any) -> dict[str, Any]:
        return super().made(uid, result) | {"request_names": ["other"]}


class BadCdiName(Plain):
    def made(self, uid: str, result: Any) -> dict[str, Any]:
        return super().made(uid, result) | {"cdi_device_ids": ["just-a-name"]}


class NoEntry(Plain):
    async def prepare(self, claims: Any, service: grpc_services.GrpcService) -> dict[str, Any]:
        await super().prepare(claims, service)
        return {}


class NamesNothing(Plain):
    """Prepares a claim without telling which devices it has."""

    async def one(self, claim: Any) -> tuple[list[Any], str]:
        _, error = await super().one(claim)
        return [], error


class NoCdiFile(Plain):
    def write_cdi(self, uid: str, devices: Any) -> None:
        """Forgotten."""


class CdiFileStays(Plain):
    async def back(self, claim: Any) -> str:
        content = self.cdi_file(claim.uid).read_bytes()
        error = await super().back(claim)
        self.cdi_file(claim.uid).write_bytes(content)
        return error


class BadCdiFile(Plain):
    def write_cdi(self, uid: str, devices: Any) -> None:
        self.cdi_file(uid).write_text('{"cdiVersion": "0.6.0", "kind": "plain.example.com/device"}')


class CountsCalls(Plain):
    calls = 0

    async def one(self, claim: Any) -> tuple[list[Any], str]:
        self.calls += 1
        devices, error = await super().one(claim)
        named = [each | {"cdi_device_ids": [*each["cdi_device_ids"] * self.calls]} for each in devices]
        return named, error


class VersionsDiffer(Plain):
    async def prepare(self, claims: Any, service: grpc_services.GrpcService) -> dict[str, Any]:
        answers = await super().prepare(claims, service)
        if service is grpc_services.DRA_V1BETA1:
            return {
                uid: ([each | {"request_names": []} for each in devices], error)
                for uid, (devices, error) in answers.items()
            }
        return answers


class FailsAsAWhole(Plain):
    async def one(self, claim: Any) -> tuple[list[Any], str]:
        devices, error = await super().one(claim)
        if error:
            raise ValueError(error)
        return devices, error


class PreparesAnything(Plain):
    async def one(self, claim: Any) -> tuple[list[Any], str]:
        devices, _ = await super().one(claim)
        return devices, ""


class IgnoresUid(Plain):
    async def found(self, claim: Any) -> Any:
        return await self.client.get(ResourceClaim, claim.name, claim.namespace), ""


class StopsAtTheFirstError(Plain):
    async def prepare(self, claims: Any, service: grpc_services.GrpcService) -> dict[str, Any]:
        answers = {}
        for claim in claims:
            answers[claim.uid] = await self.one(claim)
            if answers[claim.uid][1]:
                break
        return answers


class AnswersTheFirst(Plain):
    async def prepare(self, claims: Any, service: grpc_services.GrpcService) -> dict[str, Any]:
        return await super().prepare(claims[:1], service)


class RefusesTwins(Plain):
    async def prepare(self, claims: Any, service: grpc_services.GrpcService) -> dict[str, Any]:
        if len({claim.uid for claim in claims}) < len(claims):
            return {claim.uid: ([], "named twice") for claim in claims}
        return await super().prepare(claims, service)


class RefusesBusy(Plain):
    """A lock that does not wait."""

    async def prepare(self, claims: Any, service: grpc_services.GrpcService) -> dict[str, Any]:
        if self._lock.locked():
            return {claim.uid: ([], "busy") for claim in claims}
        return await super().prepare(claims, service)

    async def one(self, claim: Any) -> tuple[list[Any], str]:
        await asyncio.sleep(0.1)
        return await super().one(claim)


class SharesEverything(Plain):
    def is_held(self, device: str) -> bool:
        return False


class KeepsDevice(Plain):
    def is_held(self, device: str) -> bool:
        self.used = {*getattr(self, "used", set()), device}
        return device in self.seen

    seen: set[str] = set()

    async def back(self, claim: Any) -> str:
        self.seen = {*self.seen, *(each["device_name"] for each in self.held.get(claim.uid, ()))}
        return await super().back(claim)


class RefusesUnknown(Plain):
    async def back(self, claim: Any) -> str:
        return await super().back(claim) if claim.uid in self.held else "no such claim is prepared"


class AsksTheApi(Plain):
    """Reads the object of a claim to give it back."""

    async def back(self, claim: Any) -> str:
        try:
            await self.client.get(ResourceClaim, claim.name, claim.namespace)
        except NotFoundError:
            return "there is no such claim"
        return await super().back(claim)


class NeverTooLate(Plain):
    def is_late(self, uid: str, pods: Any) -> bool:
        return False


class RemembersTooMuch(Plain):
    """Answers from memory for claims that were given back."""

    memory: dict[str, Any] = {}

    async def one(self, claim: Any) -> tuple[list[Any], str]:
        if claim.uid in self.memory:
            return self.memory[claim.uid], ""
        devices, error = await super().one(claim)
        if not error:
            self.memory = {**self.memory, claim.uid: devices}
        return devices, error


class NeverAgain(Plain):
    def is_late(self, uid: str, pods: Any) -> bool:
        return uid in self.gone


class Forgets(Plain):
    """Keeps nothing over a restart, and names CDI devices by its start time."""

    starts = 0

    def read_state(self) -> None:
        self.starts += 1

    def made(self, uid: str, result: Any) -> dict[str, Any]:
        names = [f"plain.example.com/device={self.starts}-{result.device}"]
        return super().made(uid, result) | {"cdi_device_ids": names}


class ForgetsQuietly(Plain):
    def read_state(self) -> None:
        """Whatever was held may be held again."""


class WritesOnce(Plain):
    """Writes a CDI file with the checkpoint, and never again."""

    async def one(self, claim: Any) -> tuple[list[Any], str]:
        if claim.uid in self.held:
            return self.held[claim.uid], ""
        return await super().one(claim)


class WritesWhenAbsent(Plain):
    def write_cdi(self, uid: str, devices: Any) -> None:
        if not self.cdi_file(uid).exists():
            super().write_cdi(uid, devices)


class MissesFile(Plain):
    async def back(self, claim: Any) -> str:
        if claim.uid in self.held and not self.cdi_file(claim.uid).exists():
            return "the CDI file is gone"
        return await super().back(claim)


class HalfDone(Plain):
    """Records a claim before its device is known, and reads that record after a crash."""

    async def restart(self) -> None:
        # The crash comes after a call has begun; on a busy machine the first one takes a while to arrive.
        async with asyncio.timeout(60):
            while not self.held:
                await asyncio.sleep(0.01)
        await self.stop()
        self.held = {uid: devices[:0] for uid, devices in self.held.items()}
        self.write_state()
        await self.start()


class Bare(Plain):
    """Conformant, but without a registration."""

    def handlers(self) -> list[Any]:
        return super().handlers()[1:]


FOUND_BY: tuple[tuple[type[Plain], str], ...] = (
    (OffersNothing, "registers"),
    (OffersTooMuch, "registers"),
    (OffersTooLittle, "offers"),
    (RefusesRegistration, "registers"),
    (SaysYesToAll, "unknown-service"),
    (HealthFails, "health"),
    (IllOfNothing, "health-report"),
    (SaysNothing, "health-report"),
    (AnotherDevice, "prepare"),
    (WrongRequest, "prepare"),
    (BadCdiName, "prepare"),
    (NoEntry, "prepare"),
    (NamesNothing, "prepare-complete"),
    (NoCdiFile, "cdi"),
    (CdiFileStays, "cdi-removed"),
    (BadCdiFile, "cdi"),
    (CountsCalls, "idempotent"),
    (VersionsDiffer, "versions"),
    (PreparesAnything, "prepare-unknown"),
    (FailsAsAWhole, "error-entries"),
    (PreparesAnything, "prepare-unallocated"),
    (IgnoresUid, "prepare-replaced"),
    (AnswersTheFirst, "batch"),
    (StopsAtTheFirstError, "batch-mixed"),
    (FailsAsAWhole, "batch-mixed"),
    (RefusesTwins, "duplicate"),
    (RefusesBusy, "concurrent"),
    (SharesEverything, "held-device"),
    (KeepsDevice, "unprepare"),
    (RefusesUnknown, "unprepare-twice"),
    (RefusesUnknown, "unprepare-unknown"),
    (RefusesUnknown, "unprepare-never"),
    (AsksTheApi, "force-delete"),
    (NeverTooLate, "late-prepare"),
    (RemembersTooMuch, "late-prepare-freed"),
    (NeverAgain, "next-pod"),
    (Forgets, "restart"),
    (AsksTheApi, "restart-deleted"),
    (ForgetsQuietly, "restart-removed"),
    (ForgetsQuietly, "restart-held"),
    (WritesOnce, "reboot"),
    (MissesFile, "reboot"),
    (WritesWhenAbsent, "crash"),
    (HalfDone, "in-flight"),
)
"""Each broken driver, with the check that finds it."""
