"""Living containers in small, under a kubelet; in full `python -m tests.faults.living --full`."""

from __future__ import annotations

from pathlib import Path

from tests.faults.living.campaign import OUTLIVING, Size, run_campaign
from tests.faults.living.driver import BROKEN
from tests.faults.living.test_living import ORDERS, SEED
from tests.kubernetes.binaries import require_program


def test_small_a_living_container_keeps_its_device_whatever_goes(tmp_path: Path) -> None:
    require_program("kubelet")
    tally = run_campaign("kubelet", tmp_path, Size(len(ORDERS), orders=ORDERS), SEED)
    print(f"seed {SEED}: {tally}")
    assert (tally.rounds, tally.orders) == (len(ORDERS), set(ORDERS))
    assert tally.outlived, "no container outlived its claim"
    assert tally.is_sound(), str(tally)


def test_a_driver_that_gives_back_at_start_is_caught(tmp_path: Path) -> None:
    require_program("kubelet")
    tally = run_campaign("kubelet", tmp_path, OUTLIVING, SEED, "gives back at start")
    assert any(BROKEN["gives back at start"].fault in each for each in tally.judge.breaches), str(tally)
