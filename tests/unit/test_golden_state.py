"""Files that earlier versions of the agent and of the driver kit left behind are read by every later one.

The files in `tests/golden/state-v1` are never written again: whoever changes a form gives it a new version
and a reader for the old one, and the next version gets a folder beside it. `state-v2` has the checkpoint of
an agent that appends changes.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import msgspec
import pytest

from dray.driver.preparing.cdi_files import ClaimCdiFiles
from dray.driver.preparing.prepared_claims import PreparedClaimStore
from dray.driver.preparing.prepared_records import (
    ClaimDeviceRecord,
    PreparedClaimRecord,
    PreparedDeviceRecord,
    SettingRecord,
)
from dray.driver.preparing.prepared_records import PreparedRecordStage as Kept
from dray.node.claims.checkpoint import FILE, Checkpoint
from dray.node.claims.plan import apply_boot_id
from dray.node.claims.record import (
    ClaimsRecord,
    ClaimUser,
    DriverPart,
    NodeClaimStage,
    RecordedClaim,
    RecordedDevice,
)
from dray.node.plugins.driver_interface import PreparedDevice
from dray.node.pods.supervisor import PAUSED_FILE
from tests.outside import ROOT

GOLDEN = ROOT / "tests" / "golden" / "state-v1"
GOLDEN_LOG = ROOT / "tests" / "golden" / "state-v2" / "checkpoint"
BOOT = "7d9c5a8e-3f0b-4a57-9d0c-5f2f6f0c1a11"
NIC, GPU = "nic.example.com", "gpu.example.com"
SHARE = "0f3a1c52-6a6e-4d0e-8b7a-2f6c1d9e4b01"
ONE, TWO, OLD = (f"5b0c8e1e-0000-4000-8000-00000000000{number}" for number in (1, 2, 3))

# --- the agent ---

TRAIN = ClaimUser(uid="pod-1", namespace="ml", name="train-0", entries=("devices", "again"))
RECORD = ClaimsRecord(
    boot_id=BOOT,
    claims=(
        RecordedClaim(
            uid=ONE,
            namespace="ml",
            name="train-0-devices",
            users=(TRAIN,),
            parts=(
                DriverPart(
                    driver=GPU,
                    state=NodeClaimStage.PREPARED,
                    wanted=(RecordedDevice(pool="node-a", device="gpu-0", request="gpu/big"),),
                    devices=(
                        PreparedDevice(
                            request_names=("gpu/big",),
                            pool="node-a",
                            device="gpu-0",
                            cdi=(f"{GPU}/claim={ONE}-0",),
                        ),
                    ),
                ),
                DriverPart(
                    driver=NIC,
                    state=NodeClaimStage.PREPARING,
                    wanted=(
                        RecordedDevice(pool="node-a", device="eth1", request="nic", share_id=SHARE),
                        RecordedDevice(pool="node-a", device="eth0", request="look", admin=True),
                    ),
                    error="the card does not answer",
                ),
            ),
            announced=True,
        ),
        RecordedClaim(
            uid=OLD,
            namespace="ml",
            name="classic",
            classic=True,
            leaving=(ClaimUser(uid="pod-2", namespace="ml", name="eval", entries=("res",)),),
            parts=(DriverPart(driver="fpga.example.com", state=NodeClaimStage.UNPREPARING),),
            announced=True,
        ),
    ),
)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "state"))


def test_the_agents_checkpoint_is_read(files: Path) -> None:
    assert Checkpoint(files / "checkpoint").load() == RECORD


def test_the_agents_checkpoint_with_changes_is_read() -> None:
    assert Checkpoint(GOLDEN_LOG).load() == RECORD


def test_what_the_checkpoint_says_is_gone_on_with(files: Path) -> None:
    record = Checkpoint(files / "checkpoint").load()
    assert isinstance(record, ClaimsRecord)
    same = apply_boot_id(record, BOOT)
    held = same.find_claim(ONE)
    assert held is not None
    assert held.parts[0].state is NodeClaimStage.PREPARED
    other = apply_boot_id(record, "another boot").find_claim(ONE)
    assert other is not None
    assert other.state is NodeClaimStage.PREPARING


def test_the_agent_still_writes_what_it_reads(tmp_path: Path) -> None:
    """A form that changes under the same version would not be understood by those who have that version."""
    assert FILE.version == 2, "a later version has golden files of its own; this test is for version 2"
    asyncio.run(_store_twice(tmp_path / "checkpoint"))
    assert (tmp_path / "checkpoint").read_bytes() == GOLDEN_LOG.read_bytes()


async def _store_twice(path: Path) -> None:
    checkpoint = Checkpoint(path)
    await checkpoint.store(ClaimsRecord(boot_id=BOOT, claims=RECORD.claims[:1]))
    await checkpoint.store(RECORD)


def test_the_list_of_stopped_pods_is_read(files: Path) -> None:
    found = PAUSED_FILE.read(files / "paused")
    assert found is not None
    assert (found[0], msgspec.json.decode(found[1])) == (1, ["pod-1", "pod-2"])


# --- a driver of the kit ---

SHARED = PreparedClaimRecord(
    uid=ONE,
    namespace="ml",
    name="train-0-devices",
    stage=Kept.PREPARED,
    boot_id=BOOT,
    devices=(
        ClaimDeviceRecord(
            request="nic",
            subrequest="fast",
            pool="node-a",
            device="eth1",
            share_id=SHARE,
            consumed={"bandwidth": "2500M"},
            config=(SettingRecord(source="claim", written='{"kind":"NicConfig","mtu":9000}'),),
        ),
        ClaimDeviceRecord(request="look", pool="node-a", device="eth0", admin=True),
    ),
    answers=(
        PreparedDeviceRecord(
            request="nic",
            pool="node-a",
            device="eth1",
            share_id=SHARE,
            cdi=(f"{NIC}/claim={ONE}-0",),
            status={"networkData": {"interfaceName": "eth1"}},
        ),
        PreparedDeviceRecord(request="look", pool="node-a", device="eth0"),
    ),
    file="0d8ce466bd472cc9148f271be447ed31",
    consumers=("pod-1",),
)
CLASSIC = PreparedClaimRecord(
    uid=TWO,
    namespace="ml",
    name="classic",
    classic=True,
    attributes={"card": "3"},
    parameters='{"bitstream":"sort"}',
    stage=Kept.UNPREPARING,
    boot_id=BOOT,
    consumers=("pod-2",),
)


def book(files: Path, boot: str = BOOT) -> PreparedClaimStore:
    return PreparedClaimStore(files / "driver", ClaimCdiFiles(files / "cdi", NIC), boot)


def test_a_drivers_claims_are_read(files: Path) -> None:
    found = book(files)
    assert found.recover(0.0) == ()
    assert found.list_records() == {ONE: SHARED, TWO: CLASSIC}
    assert found.get_record_and_state(ONE) == (SHARED, True), (
        "its CDI file is the one that was written with it"
    )
    assert book(files, "another boot").get_record_and_state(ONE) == (SHARED, False)


def test_a_claim_that_was_given_back_is_still_known(files: Path) -> None:
    assert book(files).compute_late_seconds(OLD, ["pod-3"], 0.0)
    assert not book(files).compute_late_seconds(OLD, ["pod-3", "pod-4"], 0.0), (
        "somebody has it who came later"
    )


def test_a_driver_still_writes_what_it_reads(files: Path) -> None:
    found = book(files)
    for entry in (SHARED, CLASSIC):
        path = files / "driver" / "prepared" / f"{entry.uid}.json"
        before = path.read_bytes()
        path.unlink()
        found.begin_prepare(entry, 0.0)
        assert path.read_bytes() == before == (GOLDEN / path.relative_to(files)).read_bytes()
