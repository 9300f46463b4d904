"""Drivers with the habits of Kubernetes' helper library and of drivers on it, all within the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import yaml

from dray.client.client import Client
from dray.wire import grpc_services
from tests.unit.driver.conformance.reference_driver import KIND, Plain

COMMON = "common"


class OnTheLibrary(Plain):
    """Reads all claims of a call first, and fails the call when one cannot be prepared.

    It keeps no records of claims that were given back, lets claims share devices, and offers a health service
    that it does not implement.
    """

    async def prepare(self, claims: Sequence[Any], service: grpc_services.GrpcService) -> dict[str, Any]:
        async with self._lock:
            for claim in claims:
                found, error = await self.found(claim)
                if found is None:
                    raise grpc_services.RpcStatusError(
                        grpc.StatusCode.UNKNOWN, f"get resource claims: {error}"
                    )
            return {claim.uid: await self.one(claim) for claim in claims}

    def is_late(self, uid: str, pods: Sequence[str]) -> bool:
        return False

    def is_held(self, device: str) -> bool:
        return False

    def handlers(self) -> list[Any]:
        *served, _health = super().handlers()
        return served


class WritesYaml(OnTheLibrary):
    """Writes YAML, and names for every claim a common CDI device, which has a file of its own.

    It answers from its checkpoint without looking for the file.
    """

    def __init__(self, folder: Path, client: Client) -> None:
        super().__init__(folder, client)
        self.common = self.cdi / "plain.example.com-device_common.yaml"
        self.common.write_text(yaml.safe_dump(_build_spec([COMMON])))

    def made(self, uid: str, result: Any) -> dict[str, Any]:
        one = super().made(uid, result)
        return one | {"cdi_device_ids": [f"{KIND}={COMMON}", *one["cdi_device_ids"]]}

    async def one(self, claim: Any) -> tuple[list[Any], str]:
        if claim.uid in self.held:
            return self.held[claim.uid], ""
        return await super().one(claim)

    def cdi_file(self, uid: str) -> Path:
        return self.cdi / f"plain.example.com-device_{uid}.yaml"

    def write_cdi(self, uid: str, devices: Sequence[Any]) -> None:
        names = [name.partition("=")[2] for each in devices for name in each["cdi_device_ids"]]
        self.cdi_file(uid).write_text(yaml.safe_dump(_build_spec([n for n in names if n != COMMON])))


class OnlyInMemory(OnTheLibrary):
    """Forgets at a restart which claims are prepared; serves and offers only the older version."""

    offered = ("v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth")
    served = (grpc_services.DRA_V1BETA1,)

    def read_state(self) -> None:
        """Nothing is kept."""


class OneFileForAll(OnTheLibrary):
    """Describes the devices of all claims in one file."""

    def write_cdi(self, uid: str, devices: Sequence[Any]) -> None:
        self._write_all()

    async def back(self, claim: Any) -> str:
        error = await super().back(claim)
        self._write_all()
        return error

    def _write_all(self) -> None:
        names = [
            name.partition("=")[2]
            for held in self.held.values()
            for each in held
            for name in each["cdi_device_ids"]
        ]
        (self.cdi / "all.yaml").write_text(yaml.safe_dump(_build_spec([COMMON, *names])))


def _build_spec(names: Sequence[str]) -> dict[str, Any]:
    edits = {"env": ["A=b"]}
    return {
        "cdiVersion": "0.6.0",
        "kind": KIND,
        "devices": [{"name": name, "containerEdits": edits} for name in names],
    }
