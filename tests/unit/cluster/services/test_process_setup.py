"""Signals: the first asks a service to stop, a later one ends it at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

STUCK = """
import asyncio
from dray.cluster.services.process_setup import install_stop_signals

async def main():
    stop = install_stop_signals()
    print("begun", flush=True)
    await stop.wait()
    print("stopping", flush=True)
    await asyncio.sleep(300)

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_a_service_that_stops_slowly(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(number)
        process.send_signal(number)  # passed on by whoever stands between: the same wish
        assert process.stdout.readline() == b"stopping\n"
        assert process.poll() is None
        patience = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < patience:
            process.send_signal(number)
            time.sleep(0.1)
        process.kill()
        assert process.wait() == -number
