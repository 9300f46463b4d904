"""Makes a release: walks a checklist, leaves wheel, source archive, bill of materials and licences in dist/.

    make release                            final version, changelog section, clean tree, all tests
    make release RELEASE_ARGS=--rehearse    the same for a development version, without the tests

The artefacts are tested, not the tree: the wheel is built from the unpacked source archive and installed into
an empty environment with the pinned requirements, and the commands run there, outside of the clone. A person
tags and publishes; the last line says how.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.wheel_trials import list_kubectl_trials, list_trials

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
FINAL = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
VERSION = re.compile(r'^__version__ = "(?P<version>[^"]+)"$', re.MULTILINE)


class ReleaseError(Exception):
    """A point of the checklist is not met."""


@dataclass
class Release:
    """What the steps of a release share."""

    version: str
    rehearsal: bool
    scratch: Path

    @property
    def wheel(self) -> Path:
        """The wheel in dist/."""
        return DIST / f"dray-{self.version}-py3-none-any.whl"

    @property
    def archive(self) -> Path:
        """The source archive in dist/."""
        return DIST / f"dray-{self.version}.tar.gz"

    @property
    def sources(self) -> Path:
        """The unpacked source archive."""
        return self.scratch / f"dray-{self.version}"

    @property
    def environment(self) -> Path:
        """The empty environment into which the wheel is installed."""
        return self.scratch / "installed"


def run(
    *command: str | Path, cwd: Path = ROOT, expected: int = 0, quiet: bool = True, path: Path | None = None
) -> str:
    """Run a command, without the settings of the caller's Python; what it printed.

    `path` is a directory in front of PATH.
    """
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    if path is not None:
        surroundings["PATH"] = os.pathsep.join([str(path), surroundings.get("PATH", os.defpath)])
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=surroundings,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
        check=False,
    )
    output = done.stdout or ""
    if done.returncode != expected:
        said = f"\n{output.rstrip()}" if output.strip() else ""
        shown = " ".join(str(part) for part in command)
        raise ReleaseError(f"`{shown}` ended with {done.returncode}, expected {expected}{said}")
    return output.strip()


def check_version(release: Release) -> str:
    """A release has a final version that no tag has yet."""
    if not release.rehearsal and not FINAL.fullmatch(release.version):
        raise ReleaseError(
            f"`{release.version}` in src/dray/__init__.py is no version of a release; "
            "expected for example `0.1.0`"
        )
    if run("git", "tag", "--list", f"v{release.version}"):
        raise ReleaseError(
            f"the tag v{release.version} exists already; raise the version in src/dray/__init__.py"
        )
    return release.version


def check_changelog(release: Release) -> str:
    """The changelog has a section with content for this version."""
    title = "Unreleased" if release.rehearsal else release.version
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    found = re.search(
        rf"^## {re.escape(title)}\b[^\n]*\n(?P<body>.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    lines = re.findall(r"^- ", found["body"], re.MULTILINE) if found else []
    if not lines:
        raise ReleaseError(f"CHANGELOG.md has no section `## {title}` with entries")
    return f"`## {title}` has {len(lines)} entries"


def check_tree(release: Release) -> str:
    """What is released is what is committed."""
    changed = run("git", "status", "--porcelain")
    if changed:
        raise ReleaseError(f"files are changed or not in the repository; commit or remove them\n{changed}")
    return f"clean at {run('git', 'rev-parse', '--short', 'HEAD')}"


def check_generated(release: Release) -> str:
    """The generated reference and the diagram are up to date."""
    run(sys.executable, "-m", "dray.cli", "reference", "--check", "docs/reference")
    run(sys.executable, "-m", "tools.package_tables", "--check")
    run(sys.executable, "-m", "tools.architecture", "--check")
    return "docs/reference and the diagram are up to date"


def check_tests(release: Release) -> str:
    """Everything that a change has to pass."""
    if release.rehearsal:
        return "left out in a rehearsal"
    run("make", "test", quiet=False)
    return "make test passed"


def build(release: Release) -> str:
    """The source archive from the tree, the wheel from the unpacked source archive."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", DIST)
    with tarfile.open(release.archive) as archive:
        archive.extractall(release.scratch, filter="data")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", DIST, cwd=release.sources)
    if not release.wheel.is_file():
        raise ReleaseError(
            f"no {release.wheel.name} was built; found {sorted(p.name for p in DIST.iterdir())}"
        )
    return ", ".join(f"{path.name} ({path.stat().st_size // 1024} KiB)" for path in sorted(DIST.iterdir()))


def install(release: Release) -> str:
    """The wheel in an empty environment, with the requirements of the source archive by hash."""
    run(sys.executable, "-m", "venv", release.environment)
    pip = (release.environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "install", "--require-hashes", "-r", release.sources / "requirements" / "run.txt")
    run(*pip, "install", "--no-deps", release.wheel)
    run(*pip, "check")
    return "installed from the wheel; requirements agree"


def try_commands(release: Release) -> str:
    """The installed commands on the examples of the source archive, outside of the clone."""
    return try_wheel(release.version, release.environment, release.sources / "examples", release.scratch)


def try_wheel(version: str, environment: Path, examples: Path, folder: Path) -> str:
    """Run the trials of an installed wheel in `folder`; return their names."""
    programs = environment / "bin"
    trials = list_trials(version, environment, examples)
    kubectl = shutil.which("kubectl")
    if kubectl is not None:
        trials += list_kubectl_trials(version, kubectl)
    for trial in trials:
        program, *arguments = trial.command
        shown = run(programs / program, *arguments, cwd=folder, expected=trial.exit_code, path=programs)
        if trial.output not in shown:
            raise ReleaseError(f"{trial.name}: expected `{trial.output}` in\n{shown}")
    return ", ".join(trial.name for trial in trials)


def list_materials(release: Release) -> str:
    """Bill of materials and licences of what was installed, licences checked against the list."""
    stem = f"dray-{release.version}"
    script = ROOT / "tools" / "materials.py"
    python = release.environment / "bin" / "python"
    return run(python, "-I", script, DIST / f"{stem}.cdx.json", DIST / f"{stem}-licences.txt")


STEPS: Mapping[str, Callable[[Release], str]] = {
    "version": check_version,
    "changelog": check_changelog,
    "tree": check_tree,
    "generated pages": check_generated,
    "tests": check_tests,
    "build": build,
    "install": install,
    "commands": try_commands,
    "materials": list_materials,
}


def main(arguments: list[str]) -> int:
    """Walk the checklist, and stop at the first point that is not met."""
    found = VERSION.search((ROOT / "src" / "dray" / "__init__.py").read_text("utf-8"))
    if found is None:
        print("no `__version__` in src/dray/__init__.py", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="dray-release-") as scratch:
        release = Release(found["version"], "--rehearse" in arguments, Path(scratch))
        for name, step in STEPS.items():
            try:
                print(f"[ok] {name}: {step(release)}", flush=True)
            except ReleaseError as missed:
                print(f"[no] {name}: {missed}", file=sys.stderr)
                return 1
    print(
        f"dist/ holds dray {release.version}"
        + (" (a rehearsal: do not publish)" if release.rehearsal else "")
    )
    if not release.rehearsal:
        print(f"next: git tag -a v{release.version}, push it, publish the files of dist/")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
