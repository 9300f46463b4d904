"""Validation of workloads: their selectors, and the templates of their pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from dray.api.fields import ROOT, FieldError, invalid, required
from dray.api.validation.field_rules import IMMUTABLE

Document: TypeAlias = Mapping[str, Any]


def validate_job_selector(job: Document, stored: Document) -> list[FieldError]:
    """Errors for an update that changes which pods belong to a job, also when it leaves the selector out."""
    new, old = ((each.get("spec") or {}).get("selector") for each in (job, stored))
    if new == old or old is None:
        return []
    path = ROOT.child("spec").child("selector")
    immutable = invalid(path, new, IMMUTABLE)
    return [immutable] if new else [required(path), immutable]
