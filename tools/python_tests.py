"""Runs the unit tests with each Python, in an environment of its own.

    make test.pythons                                  every Python from 3.11 on, on PATH or in pyenv
    make test.pythons PYTHONS="python3.13 python3.14"  these interpreters

An environment is kept in `.pythons` and used again as long as the pinned requirements are the same. Needs a
package index.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools.release import ROOT
from tools.wheel_smoke import VERSIONS, ask_version, find_interpreters

ENVIRONMENTS = ROOT / ".pythons"
REQUIREMENTS = ROOT / "requirements" / "dev.txt"
STAMP = "installed-requirements.txt"


def prepare_environment(program: str, version: str) -> Path:
    """Return the interpreter of an environment with the pinned requirements and dray."""
    folder = ENVIRONMENTS / version
    python, stamp = folder / "bin" / "python", folder / STAMP
    pinned = REQUIREMENTS.read_text("utf-8")
    if stamp.exists() and stamp.read_text("utf-8") == pinned:
        return python
    subprocess.run([program, "-m", "venv", "--clear", folder], check=True)
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install")
    subprocess.run([*pip, "--require-hashes", "-r", REQUIREMENTS], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", ROOT], check=True)
    stamp.write_text(pinned, "utf-8")
    return python


def run_tests(python: Path, arguments: list[str]) -> bool:
    """Run the unit tests; whether they passed."""
    command = [str(python), "-m", "pytest", "-q", *arguments, "tests/unit"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def main(programs: list[str]) -> int:
    """Run the tests with each interpreter; 1 when they fail with one of them."""
    interpreters = {ask_version(each) or each: each for each in programs} or find_interpreters()
    arguments = os.environ.get("PYTEST_ARGS", "").split()
    failed = []
    for version, program in interpreters.items():
        print(f"== Python {version} ({program})", flush=True)
        try:
            passed = run_tests(prepare_environment(program, version), arguments)
        except (OSError, subprocess.CalledProcessError) as broken:
            print(f"cannot prepare an environment: {broken}", file=sys.stderr)
            passed = False
        if not passed:
            failed.append(version)
    for version in VERSIONS if not programs else ():
        if version not in interpreters:
            print(f"[--] Python {version}: not found")
    for version in interpreters:
        print(f"[{'no' if version in failed else 'ok'}] Python {version}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
