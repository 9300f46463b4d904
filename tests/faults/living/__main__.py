"""A living container never loses its device: `python -m tests.faults.living --full [--seed N]`.

Runs with `dray node`, and with a kubelet where `DRAY_KUBE_BIN` names a directory with Kubernetes' programs.
Prints its seed and its figures, and ends with 1 when a pass line is missed.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

from tests.faults.living.campaign import OUTLIVING, Size, run_campaign
from tests.faults.living.driver import BROKEN
from tests.faults.living.sites import SITES
from tests.kubernetes.binaries import NO_KUBERNETES, VARIABLE

ROUNDS = {False: 20, True: 200}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the pass lines")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--rounds", type=int, help="so many rounds, instead")
    parser.add_argument("--site", choices=list(SITES), action="append", help="only there")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    rounds, passed = options.rounds or ROUNDS[options.full], True
    for site in options.site or SITES:
        if site == "kubelet" and not os.environ.get(VARIABLE):
            print(NO_KUBERNETES, flush=True)
            continue
        with tempfile.TemporaryDirectory(prefix="dray-") as folder:
            tally = run_campaign(site, Path(folder), Size(rounds), options.seed)
        print(f"living, {site}: {tally}", flush=True)
        passed &= tally.is_sound() and tally.rounds >= rounds
        for broken in BROKEN if options.full else ():
            passed &= not BROKEN[broken].fault or _is_caught(site, broken, options.seed)
    return 0 if passed else 1


def _is_caught(site: str, broken: str, seed: int) -> bool:
    """A driver that is broken must be found to be so, or the run proves nothing."""
    with tempfile.TemporaryDirectory(prefix="dray-") as folder:
        tally = run_campaign(site, Path(folder), OUTLIVING, seed, broken)
    found = any(BROKEN[broken].fault in each for each in (*tally.breaches, *tally.judge.breaches))
    print(f"living, {site}, a driver that {broken}: {'caught' if found else 'NOT CAUGHT'}", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
