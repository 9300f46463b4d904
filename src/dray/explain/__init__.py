"""Explanations: why claims get these devices, why they do not fit, and what would help.

`diagnose` runs the search of the allocator and turns its trace into a `Diagnosis`; the text page, the
one-line summary for events and the JSON document are rendered from it. The package decides nothing, reads no
files, prints nothing and has no colours. Placement, the simulation and the command line import it; the
allocator never does.
"""

from dray.explain.diagnoser import diagnose, diagnose_fault, diagnose_stepwise
from dray.explain.diagnosis import Diagnosis, DiagnosisVerdict, Hint, NodeOutcome, NodeReport
from dray.explain.kubernetes_aborts import KubernetesAbort, find_abort
from dray.explain.rendering.document import to_document
from dray.explain.rendering.text import PageRole, render_text, summarize
from dray.explain.work_budget import Steps, WorkBudget, run_to_end

__all__ = [
    "Diagnosis",
    "DiagnosisVerdict",
    "Hint",
    "KubernetesAbort",
    "NodeOutcome",
    "NodeReport",
    "PageRole",
    "Steps",
    "WorkBudget",
    "diagnose",
    "diagnose_fault",
    "diagnose_stepwise",
    "find_abort",
    "render_text",
    "run_to_end",
    "summarize",
    "to_document",
]
