"""R-15 on a node: `python -m tests.faults.gates --full [--seed N]`.

Every feature goes and comes in the server, the scheduler and both. Prints its seed and its figures, and ends
with 1 when a pass line is missed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.e2e.kubectl import NO_KUBECTL
from tests.faults.gates.campaign import Campaign
from tests.faults.gates.place import FEATURES, placed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the pass lines")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        print(NO_KUBECTL)
        return 1
    with tempfile.TemporaryDirectory() as folder, placed(Path(folder), kubectl, Path(folder)) as place:
        campaign = Campaign(place, options.seed)
        campaign.begin()
        if options.full:
            campaign.each()
        else:
            campaign.without("both", *FEATURES)
            campaign.again()
    print(f"R-15 {campaign.tally}", flush=True)
    for difference in campaign.tally.wrong[:20]:
        print(difference, flush=True)
    return 0 if campaign.tally.sound() else 1


if __name__ == "__main__":
    sys.exit(main())
