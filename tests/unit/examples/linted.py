"""Lint and convert, as the tests of the examples use them: through the command line, on files or on texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from dray.cli.app import dray
from dray.cli.commands.manifests.lint import lint_files
from dray.cli.input.manifest_files import find_input_files
from dray.gates import GateSet
from dray.lint import LintFinding
from tests.outside import ROOT

EXAMPLES = ROOT / "examples"


def manifests(folder: str) -> list[Path]:
    """Return the manifests in a directory of the examples."""
    return sorted((EXAMPLES / folder).glob("*.yaml"))


def findings(*paths: Path, complete: bool = False) -> Sequence[LintFinding]:
    """Return the findings of lint, notes included."""
    return lint_files(
        find_input_files([str(path) for path in paths]), GateSet.from_defaults(), complete=complete
    ).findings


def format_finding(finding: LintFinding) -> str:
    """Join all texts of a finding."""
    return "\n".join((finding.message, finding.expected, finding.hint, finding.rewrite))


def convert(text: str, version: str) -> str:
    """Convert a manifest to another version, as YAML."""
    # Through the group: click caches the help option of a command as it was first called.
    arguments = ["convert", "--to", version, "-"]
    result = CliRunner().invoke(dray, arguments, input=text, standalone_mode=False)
    assert (result.exception, result.return_value) == (None, 0), result.output
    return result.stdout


def documents(text: str) -> list[Any]:
    """Return the documents of a YAML text, read by another parser than dray's."""
    return list(yaml.safe_load_all(text))
