"""Fixtures to run commands in a folder of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from dray.cli.app import run


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    code: int
    out: str
    err: str


Typed = Callable[..., Result]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that commands run in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def typed(desk: Path, capfd: pytest.CaptureFixture[str]) -> Typed:
    """Type a command; runs in this process, through the same entry point as the real one."""

    def typing(*arguments: str) -> Result:
        code = run(arguments)
        said = capfd.readouterr()
        assert "Traceback" not in said.err
        return Result(code, click.unstyle(said.out), said.err)

    return typing


def process(*arguments: str, stdin: bytes = b"", folder: Path | None = None) -> Result:
    """Run the command as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "dray.cli", *arguments],
        input=stdin,
        capture_output=True,
        cwd=folder,
        timeout=60,
        check=False,
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())
