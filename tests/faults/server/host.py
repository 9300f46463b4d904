"""A server as a process of its own: `python -m tests.faults.server.host FOLDER LIMITS`, limits as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import uvloop

from dray.clock import SystemClock
from dray.cluster.services.api_server import ServerOptions, serve
from dray.server.http.limits import Limits
from dray.telemetry.logs import Log, to_descriptor


def main(folder: str, limits: str) -> None:
    log = Log(to_descriptor(2), SystemClock())
    chosen = Limits(**json.loads(limits))
    uvloop.run(serve(ServerOptions(Path(folder), port=0, limits=chosen, log=log), lambda started: None))


if __name__ == "__main__":
    main(*sys.argv[1:])
