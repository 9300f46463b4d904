"""Device metadata files: written as Kubernetes writes them, and read as workloads read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.wire.device_metadata import (
    CLAIMS_SUBDIR,
    TEMPLATES_SUBDIR,
    MetadataClaim,
    MetadataDevice,
    MetadataFile,
    MetadataRequest,
    UnreadableMetadataError,
    build_container_path,
    decode_metadata,
    encode_metadata,
    read_metadata,
)

DEVICE = MetadataDevice(
    driver="gpu.example.com",
    pool="node-a",
    name="gpu-0",
    attributes={
        "model": {"string": "a100"},
        "resource.kubernetes.io/numaNode": {"int": 1},
        "driverVersion": {"version": "1.2.3"},
        "ports": {"ints": [1, 2]},
    },
    network_data={"interfaceName": "eth1", "ips": ["10.0.0.7/24"]},
)
FILE = MetadataFile(
    metadata=MetadataClaim(name="train-0-gpus-x7z", namespace="ml", uid="u-1", generation=2),
    pod_claim_name="gpus",
    requests=(MetadataRequest(name="gpu/large", devices=(DEVICE,)),),
)
OBJECT = """\
{
  "kind": "DeviceMetadata",
  "apiVersion": "metadata.resource.k8s.io/VERSION",
  "metadata": {
    "name": "train-0-gpus-x7z",
    "namespace": "ml",
    "uid": "u-1",
    "generation": 2
  },
  "podClaimName": "gpus",
  "requests": [
    {
      "name": "gpu/large",
      "devices": [
        {
          "driver": "gpu.example.com",
          "pool": "node-a",
          "name": "gpu-0",
          "attributes": {
            "model": {
              "string": "a100"
            },
            "resource.kubernetes.io/numaNode": {
              "int": 1
            },
            "driverVersion": {
              "version": "1.2.3"
            },
            "ports": {
              "ints": [
                1,
                2
              ]
            }
          },
          "networkData": {
            "interfaceName": "eth1",
            "ips": [
              "10.0.0.7/24"
            ]
          }
        }
      ]
    }
  ]
}
"""
TEXT = OBJECT.replace("VERSION", "v1beta1") + OBJECT.replace("VERSION", "v1alpha1")


def test_a_file_has_the_same_content_in_each_version_the_newest_first() -> None:
    assert encode_metadata(FILE).decode() == TEXT
    assert decode_metadata(TEXT.encode()) == FILE


def test_a_reader_skips_versions_that_it_does_not_know_and_fields_of_later_ones() -> None:
    later = OBJECT.replace("VERSION", "v2").replace('"pool"', '"basin"')
    more = OBJECT.replace("VERSION", "v1alpha1").replace('"pool"', '"share": "s", "pool"')
    assert decode_metadata((later + more).encode()) == FILE


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "got nothing"),
        ("{", "no JSON"),
        ("[]", "got `None`"),
        (OBJECT.replace("VERSION", "v2"), "got `metadata.resource.k8s.io/v2`"),
        (OBJECT.replace("VERSION", "v1beta1").replace('"gpu-0"', "7"), r"requests\[0\].devices\[0\].name"),
    ],
)
def test_what_is_no_device_metadata_is_an_error(text: str, says: str) -> None:
    with pytest.raises(UnreadableMetadataError, match=says):
        decode_metadata(text.encode())


def test_paths_in_containers_have_the_names_that_authors_of_pods_know() -> None:
    top = "/var/run/kubernetes.io/dra-device-attributes"
    direct = build_container_path("gpu.example.com", "gpu", "my-claim")
    assert str(direct) == f"{top}/resourceclaims/my-claim/gpu/gpu.example.com-metadata.json"
    made = build_container_path("gpu.example.com", "gpu", "train-0-gpus-x7z", "gpus")
    assert str(made) == f"{top}/resourceclaimtemplates/gpus/gpu/gpu.example.com-metadata.json"


def test_a_workload_reads_what_all_drivers_of_a_request_say(tmp_path: Path) -> None:
    folder = tmp_path / TEMPLATES_SUBDIR / "gpus" / "gpu"
    folder.mkdir(parents=True)
    other = MetadataDevice(driver="nic.example.com", pool="node-a", name="nic-0")
    for each in (DEVICE, other):
        requests = (MetadataRequest(name="gpu/large", devices=(each,)),)
        content = encode_metadata(MetadataFile(metadata=FILE.metadata, requests=requests))
        (folder / f"{each.driver}-metadata.json").write_bytes(content)
    (request,) = read_metadata(TEMPLATES_SUBDIR, "gpus", "gpu", directory=tmp_path).requests
    assert request.devices == (DEVICE, other)
    (request,) = read_metadata(TEMPLATES_SUBDIR, "gpus", "gpu", other.driver, tmp_path).requests
    assert request.devices == (other,)
    with pytest.raises(UnreadableMetadataError, match="there is no device metadata"):
        read_metadata(CLAIMS_SUBDIR, "gpus", "gpu", directory=tmp_path)
