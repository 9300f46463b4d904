"""Lint: everything that can be said about manifests before anybody runs them, as findings.

Documents come in, findings go out: what is wrong, where it stands, what was expected, what to write instead.
Nothing here reads files, prints or decides an exit code; `RULES` is the table the reference is made from. The
doors may import it, and nothing below it knows that it exists.
"""

from dray.lint.cross_object_checks import crosscheck
from dray.lint.document_checks import Inspected, inspect
from dray.lint.findings import Finding, settled
from dray.lint.object_facts import Facts
from dray.lint.rules import RULES, Rule, Severity

__all__ = ["RULES", "Facts", "Finding", "Inspected", "Rule", "Severity", "crosscheck", "inspect", "settled"]
