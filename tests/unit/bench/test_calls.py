"""Counting the calls of a cluster: what counts as JSON, and a real process that is asked twice."""

from __future__ import annotations

import subprocess
import sys
from types import CodeType

import pytest

from bench.scheduler.__main__ import pick_workloads
from bench.scheduler.calls import CallCounter, Calls, count_calls
from bench.scheduler.workloads import EVERYTHING

PROGRAM = """
import sys, threading, time
from pathlib import Path
from bench.scheduler.calls import CallProfile
import msgspec

def work():
    for _ in range(100):
        msgspec.json.decode(b"1")

file = Path(sys.argv[1])
CallProfile(file).install()
print("installed", flush=True)
while not file.exists():
    time.sleep(0.01)
work()
beside = threading.Thread(target=work)
beside.start()
beside.join()
print("worked", flush=True)
while True:
    time.sleep(0.01)
"""


def test_json_texts_are_those_of_msgspec():
    called: list[tuple[CodeType | str, int]] = [
        ("<method 'encode' of 'msgspec.json.Encoder' objects>", 5),
        ("<method 'encode_into' of 'msgspec.json.Encoder' objects>", 1),
        ("<built-in method msgspec._core.json_decode>", 3),
        ("<method 'decode' of 'bytes' objects>", 7),
        ("<built-in method msgspec._core.to_builtins>", 2),
        (count_calls.__code__, 10),
    ]
    assert count_calls(called) == Calls(28, 6, 3)


def test_counts_are_divided_by_pods():
    assert (Calls(30, 20, 10) - Calls(10, 0, 0)).divide(10) == Calls(2, 2, 1)
    assert Calls(30, 20, 10).divide(0) == Calls()


def test_a_process_counts_the_calls_of_its_threads_between_two_signals(tmp_path):
    file = tmp_path / "calls.json"
    command = [sys.executable, "-c", PROGRAM, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "installed\n"
            counter = CallCounter(file, process.pid)
            before = counter.read()
            assert process.stdout.readline() == "worked\n"
            found = counter.read() - before
        finally:
            process.kill()
    assert found.decodes >= (200 if sys.version_info < (3, 12) else 100)
    assert found.calls > found.decodes


def test_without_names_a_few_workloads_are_measured_and_with_full_all():
    short = [workload.name for workload in pick_workloads([])]
    assert len(short) == 6
    assert "agents/100nodes" in short
    assert pick_workloads([], full=True) == list(EVERYTHING)
    assert [workload.name for workload in pick_workloads(["LARGE"])] == ["Large/half_5000nodes"]
    with pytest.raises(SystemExit, match="`nothing`"):
        pick_workloads(["nothing"])
