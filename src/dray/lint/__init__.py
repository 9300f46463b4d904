"""Lint: everything that can be said about manifests before anybody runs them, as findings.

Documents come in, findings go out: what is wrong, where it stands, what was expected, what to write instead.
Nothing here reads files, prints or decides an exit code; `RULES` is the table the reference is made from. The
doors may import it, and nothing below it knows that it exists.
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
