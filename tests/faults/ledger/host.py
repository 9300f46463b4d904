"""A server in a process of its own: `python -m tests.faults.ledger.host DIRECTORY [--no-ledger]`.

Prints the path of its kubeconfig when it answers, and ends when its input does.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from dray.cluster.services.api_server import ServerProcessOptions, open_server


async def main() -> None:
    directory, ledger = Path(sys.argv[1]), "--no-ledger" not in sys.argv
    async with open_server(ServerProcessOptions(directory, port=0, ledger=ledger)) as started:
        print(started.kubeconfig, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
