"""Lint: static checks of manifests, reported as findings.

A finding says what is wrong, where, what is expected and what to write instead. The package reads no files,
prints nothing and decides no exit code; `RULES` is the table that the reference documentation is generated
from. The command line and the simulation import it; no package below it does.
"""

from dray.lint.cross_object_checks import crosscheck
from dray.lint.document_checks import InspectionResult, inspect_document
from dray.lint.findings import LintFinding, resolve_deferred
from dray.lint.object_facts import ObjectFacts
from dray.lint.rules import RULES, LintRule, Severity

__all__ = [
    "RULES",
    "InspectionResult",
    "LintFinding",
    "LintRule",
    "ObjectFacts",
    "Severity",
    "crosscheck",
    "inspect_document",
    "resolve_deferred",
]
