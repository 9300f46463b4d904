"""The audit log: who requested what, when, and what was decided, in a hash chain of lines.

A line has hashes of object contents, never the contents, and for secrets not even hashes. A change that
cannot be logged is refused. The server writes the log, and `dray doctor audit` verifies it.
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
