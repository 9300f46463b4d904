"""The audit log: who asked for what, when, and what was decided, in lines that cannot be changed unnoticed.

Contents of objects never stand here, only their hashes, and of secrets not even those; what the log cannot
take is not carried out. The server writes it, and `dray doctor audit` reads it.
"""

from __future__ import annotations

from dray.server.audit.events import Outcome
from dray.server.audit.hash_chain import Finding, Verdict
from dray.server.audit.log import AuditLog, AuditSettings, WhenStuck
from dray.server.audit.verification import files_of, verify

__all__ = [
    "AuditLog",
    "AuditSettings",
    "Finding",
    "Outcome",
    "Verdict",
    "WhenStuck",
    "files_of",
    "verify",
]
