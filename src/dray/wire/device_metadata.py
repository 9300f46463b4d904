"""Device metadata files (KEP-5304): what a container can read about the devices it has.

    read_metadata("resourceclaims", "my-claim", "gpu")          # a claim that the pod names
    read_metadata("resourceclaimtemplates", "gpus", "gpu")      # an entry of the pod with a template

Theory of operation: for each request a driver mounts one file into containers. It is a stream of JSON objects
with the same content in every version of the format, the newest first; a reader takes the first version that
it knows. The directory has the name of the claim, or of the pod's entry when a template made the claim,
because authors of pods know no other name.

Rules for this file: paths and formats are those of Kubernetes, so that the same workloads read them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from dray.errors import DrayError

CONTAINER_DIR: Final = PurePosixPath("/var/run/kubernetes.io/dra-device-attributes")
CLAIMS_SUBDIR: Final = "resourceclaims"
TEMPLATES_SUBDIR: Final = "resourceclaimtemplates"
FILE_SUFFIX: Final = "-metadata.json"
VERSIONS: Final = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
"""The versions of the format, the newest first; they have the same fields."""
_KIND: Final = "DeviceMetadata"


class UnreadableMetadataError(DrayError):
    """A file is no device metadata, or there is none."""


class _MetadataStruct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base of the parts of a file; members that a later version adds are ignored."""


class MetadataDevice(_MetadataStruct, frozen=True):
    """A device of a request."""

    driver: str
    pool: str
    name: str
    attributes: dict[str, dict[str, Any]] = {}
    """As in a ResourceSlice: `{"model": {"string": "a100"}}`."""
    network_data: dict[str, Any] | None = None


class MetadataRequest(_MetadataStruct, frozen=True):
    """A request, as `request/subrequest` when it has alternatives, and its devices."""

    name: str
    devices: tuple[MetadataDevice, ...] = ()


class MetadataClaim(_MetadataStruct, frozen=True):
    """The claim that the devices are allocated to."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    """Rises with every change of the file."""


class MetadataFile(_MetadataStruct, frozen=True):
    """The content of a file."""

    metadata: MetadataClaim = MetadataClaim()
    pod_claim_name: str | None = None
    """The entry of the pod, when a template made the claim."""
    requests: tuple[MetadataRequest, ...] = ()


def build_container_path(driver: str, request: str, claim: str, pod_claim: str = "") -> PurePosixPath:
    """Return the path of a file in containers, under the pod's entry when a template made the claim."""
    directory = CONTAINER_DIR / (TEMPLATES_SUBDIR if pod_claim else CLAIMS_SUBDIR) / (pod_claim or claim)
    return directory / request / f"{driver}{FILE_SUFFIX}"


def encode_metadata(content: MetadataFile) -> bytes:
    """Encode a file in all versions."""
    fields = msgspec.to_builtins(content)
    documents = ({"kind": _KIND, "apiVersion": version, **fields} for version in VERSIONS)
    return b"".join(msgspec.json.format(msgspec.json.encode(each), indent=2) + b"\n" for each in documents)


def decode_metadata(content: bytes) -> MetadataFile:
    """Decode the first object of a version that is known; raises `UnreadableMetadataError`."""
    unknown = []
    for document in _iterate_objects(content):
        version = document.get("apiVersion") if isinstance(document, dict) else None
        if version in VERSIONS and document.get("kind") == _KIND:
            try:
                return msgspec.convert(document, MetadataFile)
            except msgspec.ValidationError as wrong:
                raise UnreadableMetadataError(f"device metadata of `{version}`: {wrong}") from None
        unknown.append(f"`{version}`")
    known = ", ".join(f"`{each}`" for each in VERSIONS)
    raise UnreadableMetadataError(
        f"no device metadata of a known version: expected {known}, got {', '.join(unknown) or 'nothing'}"
    )


def _iterate_objects(content: bytes) -> Iterator[Any]:
    decoder, rest = json.JSONDecoder(), content.decode("utf-8", "replace").strip()
    while rest:
        try:
            found, end = decoder.raw_decode(rest)
        except ValueError as wrong:
            raise UnreadableMetadataError(f"device metadata is no JSON: {wrong}") from None
        yield found
        rest = rest[end:].lstrip()


def read_metadata(
    kind: str, claim: str, request: str, driver: str = "", directory: Path | None = None
) -> MetadataFile:
    """Read in a container what is known about the devices of a request, of one driver or of all of them.

    `kind` is `CLAIMS_SUBDIR` with the name of a claim, or `TEMPLATES_SUBDIR` with that of the pod's entry.
    """
    folder = (directory or Path(CONTAINER_DIR)) / kind / claim / request
    files = sorted(folder.glob(f"{driver or '*'}{FILE_SUFFIX}"))
    if not files:
        raise UnreadableMetadataError(f"there is no device metadata in `{folder}`")
    parts = [decode_metadata(file.read_bytes()) for file in files]
    devices: dict[str, tuple[MetadataDevice, ...]] = {}
    for part in parts:
        for each in part.requests:
            devices[each.name] = devices.get(each.name, ()) + each.devices
    requests = tuple(MetadataRequest(name=name, devices=found) for name, found in devices.items())
    return msgspec.structs.replace(parts[0], requests=requests)
