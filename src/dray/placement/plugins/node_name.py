"""A pod that names its node goes there or nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dray.placement.framework import Opinion
from dray.placement.rejections import Signal, Topic, Verdict

if TYPE_CHECKING:
    from dray.placement.pending_pod import Subject
    from dray.placement.snapshot import Snapshot

NAME = "NodeName"

_ELSEWHERE = Verdict(NAME, "not the node that the pod names", frozenset({Signal(Topic.NODES)}))


@dataclass(frozen=True, slots=True)
class NodeName:
    """`spec.nodeName`."""

    name: str = NAME

    def opinion(self, subject: Subject, snapshot: Snapshot) -> Opinion | None:
        """Only the node that is named, if one is."""
        wanted = subject.pod.spec.node_name
        return Opinion(names=frozenset({wanted}), elsewhere=_ELSEWHERE) if wanted else None
