"""Findings of an inspection, and the table of checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class FindingSeverity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """Pods cannot start or end because of it."""
    WARNING = "warning"
    """Nothing fails because of it now."""


class NodeCheck(StrEnum):
    """What an inspection checks."""

    DIRECTORIES = "directories"
    SOCKETS = "sockets"
    DRIVERS = "drivers"
    CDI_FILES = "cdi-files"
    CHECKPOINT = "checkpoint"
    CLAIMS = "claims"
    LEFTOVERS = "leftovers"


CHECK_DESCRIPTIONS: Final[Mapping[NodeCheck, str]] = MappingProxyType(
    {
        NodeCheck.DIRECTORIES: "The directories of the kubelet and of CDI files can be read",
        NodeCheck.SOCKETS: "A process listens at each registration socket and answers GetInfo in time",
        NodeCheck.DRIVERS: "Each registered DRA driver listens at the endpoint that it names",
        NodeCheck.CDI_FILES: "Each CDI file is valid, and no two describe the same device",
        NodeCheck.CHECKPOINT: "The checkpoint of the kubelet is intact",
        NodeCheck.CLAIMS: "Prepared claims have their driver and their CDI devices",
        NodeCheck.LEFTOVERS: "No CDI file describes a claim that is not prepared, no dead socket is left",
    }
)


@dataclass(frozen=True, slots=True)
class NodeFinding:
    """One thing that is wrong on a node."""

    check: NodeCheck
    severity: FindingSeverity
    message: str
    hint: str = ""
