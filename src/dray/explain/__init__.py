"""From the beats of a search to understanding: why these devices, why not, what would help.

`diagnose` asks the same engine that allocates and makes a `Diagnosis` of its story; the page for people, the
line for events and the document for machines are made of it here and nowhere else. Nothing here decides
anything, reads files, prints or knows colours. Placement, the simulator and the doors import it; the
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
