"""Installs the wheel of this tree into an empty environment of each Python, and tries its commands there.

    make wheel.smoke                                 every Python from 3.11 on, on PATH or in pyenv
    python -m tools.wheel_smoke /path/to/python3.14  these interpreters

Needs a package index, for what dray depends on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.release import ROOT, VERSION, ReleaseError, run, try_wheel

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
"""The versions that the classifiers in pyproject.toml name."""
_SHOW_VERSION = "import platform, ensurepip; print(platform.python_version())"


def read_version() -> str:
    """Read the version of dray in this tree."""
    found = VERSION.search((ROOT / "src" / "dray" / "__init__.py").read_text("utf-8"))
    assert found is not None
    return found["version"]


def find_interpreters() -> dict[str, str]:
    """Find one interpreter for each version, by the version that it says it has."""
    found: dict[str, str] = {}
    for program in (sys.executable, *(f"python{version}" for version in VERSIONS), *_list_pyenv()):
        full = ask_version(program)
        if full is not None:
            found.setdefault(full.rpartition(".")[0], program)
    return {version: found[version] for version in VERSIONS if version in found}


def _list_pyenv() -> Iterator[str]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from (str(path) for path in sorted(root.glob("versions/3.1[1-9]*/bin/python3")))


def ask_version(program: str) -> str | None:
    """Ask an interpreter for its version; None when it does not run. A name on PATH is not yet a Python."""
    try:
        done = subprocess.run(
            [program, "-I", "-c", _SHOW_VERSION], capture_output=True, text=True, timeout=30, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this tree into `folder`."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def smoke(program: str, wheel: Path, folder: Path) -> str:
    """Install the wheel with its dependencies into an empty environment, and try it."""
    environment = folder / "environment"
    run(program, "-m", "venv", environment)
    pip = (environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "install", wheel)
    run(*pip, "check")
    return try_wheel(read_version(), environment, ROOT / "examples", folder)


def main(arguments: list[str]) -> int:
    """Try each interpreter; 1 when one of them fails."""
    interpreters = (
        {ask_version(name) or name: name for name in arguments} if arguments else find_interpreters()
    )
    failed = 0
    with tempfile.TemporaryDirectory(prefix="dray-wheel-") as scratch:
        wheel = build_wheel(Path(scratch))
        for version, program in interpreters.items():
            folder = Path(scratch) / version.replace("/", "_")
            folder.mkdir()
            try:
                print(
                    f"[ok] Python {ask_version(program) or version}: {smoke(program, wheel, folder)}",
                    flush=True,
                )
            except (ReleaseError, OSError) as missed:
                print(f"[no] Python {version}: {missed}", file=sys.stderr)
                failed = 1
    for version in VERSIONS if not arguments else ():
        if version not in interpreters:
            print(f"[--] Python {version}: not found")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
