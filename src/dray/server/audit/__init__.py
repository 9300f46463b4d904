"""The audit log: who asked for what, when, and what was decided, in lines that cannot be changed unnoticed.

Contents of objects never stand here, only their hashes, and of secrets not even those; what the log cannot
take is not carried out. The server writes it, and `dray doctor audit` reads it.
"""

from __future__ import annotations

from dray.server.audit.events import AuditOutcome
from dray.server.audit.hash_chain import ChainFinding, ChainReport
from dray.server.audit.log import AuditFailurePolicy, AuditLog, AuditOptions
from dray.server.audit.verification import list_log_files, verify_files

__all__ = [
    "AuditFailurePolicy",
    "AuditLog",
    "AuditOptions",
    "AuditOutcome",
    "ChainFinding",
    "ChainReport",
    "list_log_files",
    "verify_files",
]
