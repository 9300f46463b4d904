"""`python -m tests.kubernetes.churn --server dray|kubernetes`: churn for so long, with a report in JSON.

Patterns of error lines that are not in the reference, the report of runs on kube-apiserver, are shown apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.differential.__main__ import select_scenarios
from tests.differential.recording import Recording
from tests.kubernetes.churn.campaign import Campaign, ChurnOptions, ChurnResult
from tests.kubernetes.churn.log_lines import read_patterns
from tests.kubernetes.churn.planes import CONTROLLERS, PLANES, SCHEDULER, SERVICE_ACCOUNTS

REFERENCE = Path(__file__).parent / "kubernetes-1.37.json"
RECORDING = Path(__file__).parents[2] / "differential" / "recordings" / "kubernetes-1.37.jsonl"


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    defaults = ChurnOptions()
    parser = argparse.ArgumentParser(prog="python -m tests.kubernetes.churn", description=__doc__)
    parser.add_argument("--server", choices=sorted(PLANES), default="dray")
    parser.add_argument("--folder", type=Path, required=True, help="for data and logs; has to be new")
    parser.add_argument(
        "--reference", type=Path, default=REFERENCE, help="patterns of a run on kube-apiserver"
    )
    for name in ("seconds", "pause", "epoch", "scenarios", "kill_every"):
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=float, default=getattr(defaults, name), metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument(
        "--service-accounts", action="store_true", help="each controller has an account and rights of its own"
    )
    return parser.parse_args(arguments)


def run(arguments: argparse.Namespace) -> ChurnResult:
    names = ("seconds", "seed", "pause", "epoch", "scenarios", "kill_every")
    options = ChurnOptions(**{name: getattr(arguments, name) for name in names})
    flags = [SERVICE_ACCOUNTS] if arguments.service_accounts else []
    with PLANES[arguments.server](arguments.folder, *flags) as plane:
        campaign = Campaign(plane, options, list(select_scenarios(["*"])))
        if options.scenarios:
            campaign.compare_with(Recording.load(RECORDING))
        try:
            return asyncio.run(campaign.run())
        except KeyboardInterrupt:
            return campaign.result


def build_report(arguments: argparse.Namespace, result: ChurnResult) -> dict[str, Any]:
    patterns: Counter[str] = Counter()
    for name in (SCHEDULER, CONTROLLERS):
        for pattern, count in read_patterns(arguments.folder / f"{name}.log").items():
            patterns[f"{name}: {pattern}"] += count
    known = json.loads(arguments.reference.read_text())["patterns"]
    report = {"server": arguments.server, "seed": arguments.seed, **vars(result)}
    report["patterns"] = dict(patterns.most_common())
    report["only_here"] = {name: count for name, count in patterns.items() if name not in known}
    return report


def main(arguments: list[str]) -> int:
    parsed = parse_arguments(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    report = build_report(parsed, run(parsed))
    (parsed.folder / "report.json").write_text(json.dumps(report, indent=1))
    print(json.dumps(report, indent=1))
    return 1 if report["findings"] or report["only_here"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
