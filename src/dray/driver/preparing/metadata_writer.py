"""The writer of device metadata: what containers can read about the devices of a claim.

Theory of operation: a request has the attributes that are published for each of its devices, and what the
author's `prepare` adds. The first device of the request mounts the file, because containers get devices by
request, and a claim without requests in a container means all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from dray.api.json_text import read_json, write_json
from dray.api.resource import Device, NetworkDeviceData
from dray.driver.base import Claim, DeviceMetadata, Got, Ready
from dray.driver.devices import device
from dray.driver.preparing.cdi_files import sanitize_uid
from dray.driver.preparing.claim_conversion import PrepareRefusedError
from dray.driver.preparing.metadata_files import MetadataFiles
from dray.errors import InputError
from dray.wire.cdi import Mount
from dray.wire.device_metadata import (
    MetadataClaim,
    MetadataDevice,
    MetadataFile,
    MetadataRequest,
    build_container_path,
)

MAX_ATTRIBUTES: Final = 32
"""Limit of attributes of a device in a file, in Kubernetes."""
_NO_METADATA: Final = DeviceMetadata()

PublishedDevices = Mapping[tuple[str, str], Device]
"""The devices that the driver publishes, by pool and name."""


class DeviceMetadataWriter:
    """Writes the metadata of a claim's devices, and adds the mounts to what containers get."""

    def __init__(
        self,
        driver: str,
        files: MetadataFiles,
        list_published: Callable[[], Awaitable[PublishedDevices]],
    ) -> None:
        self._driver, self._files = driver, files
        self._list_published = list_published

    async def add_mounts(self, claim: Claim, ready: Sequence[Ready]) -> list[Ready]:
        """Write the files of a claim; the first device of each request mounts that of the request."""
        published = await self._list_published()
        return await asyncio.to_thread(self._write_claim, claim, ready, published)

    def update(self, claim: Claim, got: Got, metadata: DeviceMetadata) -> None:
        """Change the metadata of a device; raises `InputError` when its claim is not prepared."""
        attributes = _build_attributes(got, metadata)

        def edit_device(before: MetadataDevice) -> MetadataDevice:
            if (before.pool, before.name) != (got.pool, got.device):
                return before
            merged = before.attributes | attributes
            _check_count(got, merged)
            network = _build_network(metadata.network) or before.network_data
            return msgspec.structs.replace(before, attributes=merged, network_data=network)

        def edit(before: MetadataFile) -> MetadataFile:
            requests = tuple(
                msgspec.structs.replace(each, devices=tuple(map(edit_device, each.devices)))
                for each in before.requests
            )
            return msgspec.structs.replace(before, requests=requests)

        if not self._files.change(sanitize_uid(claim.uid), got.request, edit):
            raise InputError(f"claim `{claim}` is not prepared with metadata of request `{got.request}`")

    def _write_claim(self, claim: Claim, ready: Sequence[Ready], published: PublishedDevices) -> list[Ready]:
        added, mounted = list(ready), set[str]()
        for position, each in enumerate(ready):
            if each.got is None or each.got.request in mounted:
                continue
            mounted.add(each.got.request)
            devices = [
                self._build_device(other.got, other, published)
                for other in ready
                if other.got is not None and other.got.request == each.got.request
            ]
            mount = self._write_request(claim, each.got, devices)
            added[position] = replace(each, mounts=(*each.mounts, mount))
        return added

    def _write_request(self, claim: Claim, got: Got, devices: Sequence[MetadataDevice]) -> Mount:
        name = f"{got.request}/{got.subrequest}" if got.subrequest else got.request
        content = MetadataFile(
            metadata=MetadataClaim(name=claim.name, namespace=claim.namespace, uid=claim.uid, generation=1),
            pod_claim_name=claim.pod_claim or None,
            requests=(MetadataRequest(name=name, devices=tuple(devices)),),
        )
        file = self._files.write(sanitize_uid(claim.uid), got.request, content)
        target = build_container_path(self._driver, got.request, claim.name, claim.pod_claim)
        return Mount(host_path=str(file), container_path=str(target), options=("ro", "bind"))

    def _build_device(self, got: Got, ready: Ready, published: PublishedDevices) -> MetadataDevice:
        metadata, found = ready.metadata or _NO_METADATA, published.get((got.pool, got.device))
        base = {} if found is None else _to_document(found).get("attributes", {})
        attributes = base | _build_attributes(got, metadata)
        _check_count(got, attributes)
        network = metadata.network or (None if ready.status is None else ready.status.network)
        return MetadataDevice(
            driver=self._driver,
            pool=got.pool,
            name=got.device,
            attributes=attributes,
            network_data=_build_network(network),
        )


def _build_attributes(got: Got, metadata: DeviceMetadata) -> dict[str, Any]:
    if not metadata.attributes:
        return {}
    built = device(got.device, attributes=metadata.attributes)
    attributes: dict[str, Any] = _to_document(built).get("attributes", {})
    return attributes


def _build_network(network: NetworkDeviceData | None) -> dict[str, Any] | None:
    return None if network is None else _to_document(network)


def _to_document(part: msgspec.Struct) -> dict[str, Any]:
    document: dict[str, Any] = read_json(write_json(part))
    return document


def _check_count(got: Got, attributes: Mapping[str, Any]) -> None:
    if len(attributes) > MAX_ATTRIBUTES:
        raise PrepareRefusedError(
            f"device `{got.device}` has {len(attributes)} attributes with its metadata; at most "
            f"{MAX_ATTRIBUTES} are possible"
        )
