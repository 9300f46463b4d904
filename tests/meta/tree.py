"""The repository as data for the meta-tests: parsed sources, text files, tiers of the import contracts."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

from tests.outside import ROOT

TEXT_SUFFIXES = {"", ".in", ".json", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
NOT_OURS = {
    ".git",
    ".venv",
    "__pycache__",
    "build",
    "dist",
    "site",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
}
FIRST_PURE_TIER = "placement"


@dataclass(frozen=True)
class Source:
    """One Python file: its path from the root of the repository, and its text."""

    path: PurePosixPath
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree, cached because walking the tree is the expensive part."""
        return tuple(ast.walk(self.tree))

    @property
    def package(self) -> str | None:
        """The package or module directly under `src/dray` that this file belongs to."""
        parts = self.path.parts
        if parts[:2] != ("src", "dray") or len(parts) < 3 or parts[2] == "__init__.py":
            return None
        return parts[2].removesuffix(".py")


def tracked_files() -> list[Path]:
    """Every file that git tracks or would add; every file of a source archive without git."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=30)
    except (OSError, subprocess.CalledProcessError):
        found = [path for path in ROOT.rglob("*") if not NOT_OURS.intersection(path.relative_to(ROOT).parts)]
    else:
        found = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return sorted(path for path in found if path.is_file())


def sources() -> Iterator[Source]:
    """Every Python file of the repository."""
    for path in tracked_files():
        if path.suffix == ".py":
            yield Source(_from_root(path), path.read_text("utf-8"))


def texts() -> Iterator[tuple[PurePosixPath, str]]:
    """Every text file of the repository."""
    for path in tracked_files():
        if path.suffix in TEXT_SUFFIXES:
            yield _from_root(path), path.read_text("utf-8")


def _from_root(path: Path) -> PurePosixPath:
    return PurePosixPath(path.relative_to(ROOT).as_posix())


@cache
def contracts() -> dict[str, dict[str, list[str]]]:
    """The import contracts of pyproject.toml by id."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return {contract["id"]: contract for contract in config["tool"]["importlinter"]["contracts"]}


def packages() -> list[str]:
    """Every package and module named in the tiers, top first."""
    return [name for layer in contracts()["tiers"]["layers"] for name in re.findall(r"\w+", layer)]


@cache
def pure_packages() -> list[str]:
    """The packages of the pure tiers."""
    names = packages()
    return names[names.index(FIRST_PURE_TIER) :]
