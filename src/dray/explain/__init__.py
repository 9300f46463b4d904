"""From the beats of a search to understanding: why these devices, why not, what would help.

`diagnose` asks the same engine that allocates and makes a `Diagnosis` of its story; the page for people, the
line for events and the document for machines are made of it here and nowhere else. Nothing here decides
anything, reads files, prints or knows colours. Placement, the simulator and the doors import it; the
allocator never does.
"""

from dray.explain.diagnoser import diagnose, diagnosing, of_fault
from dray.explain.diagnosis import Diagnosis, Hint, NodeStory, Outcome, Verdict
from dray.explain.kubernetes_aborts import Abort, find_abort
from dray.explain.rendering.document import to_document
from dray.explain.rendering.text import Role, render_text, summary
from dray.explain.work_budget import Effort, Steps, at_once

__all__ = [
    "Abort",
    "Diagnosis",
    "Effort",
    "Hint",
    "NodeStory",
    "Outcome",
    "Role",
    "Steps",
    "Verdict",
    "at_once",
    "diagnose",
    "diagnosing",
    "find_abort",
    "of_fault",
    "render_text",
    "summary",
    "to_document",
]
