"""A server as a process of its own: `python -m tests.faults.server.host FOLDER LIMITS`, limits as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import uvloop

from dray.clock import SystemClock
from dray.cluster.services.api_server import ServerProcessOptions, serve
from dray.server.http.limits import ServerLimits
from dray.telemetry.logs import StructuredLogger, build_descriptor_sink


def main(folder: str, limits: str) -> None:
    log = StructuredLogger(build_descriptor_sink(2), SystemClock())
    chosen = ServerLimits(**json.loads(limits))
    uvloop.run(
        serve(ServerProcessOptions(Path(folder), port=0, limits=chosen, log=log), lambda started: None)
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
