"""What the parts of a claim office share: what it was told, and what it works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dray.api.core import Node
from dray.client.timing import Tempo
from dray.node.agent_metrics import Metrics
from dray.node.claims.claim_events import Telling
from dray.node.claims.driver_calls import Calling, Lines
from dray.node.claims.preparations import Preparations
from dray.node.keyed_locks import Bell, Busy, Turns


def _quiet(event: str, **fields: Any) -> None:
    pass


def _onwards(point: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class OfficeChoices:
    """What a claim office is told."""

    node: Callable[[], Node]
    """The node as it was last seen: its name, labels and annotations."""
    checkpoint: Path
    lines: Lines
    """The drivers that are registered."""
    boot_id: str
    tempo: Tempo = field(default_factory=Tempo)
    metrics: Metrics = field(default_factory=Metrics)
    claims: bool = True
    """Whether pods get what their claims promise; they start without it otherwise."""
    log: Callable[..., None] = _quiet
    """Told what operators should know: a sentence, and fields."""
    crash: Callable[[str], None] = _onwards
    """Called at points where tests let the agent die."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What the parts of a claim office work with."""

    choices: OfficeChoices
    calling: Calling
    preparations: Preparations
    telling: Telling
    busy: Busy = field(default_factory=Busy)
    turns: Turns = field(default_factory=Turns)
    news: Bell = field(default_factory=Bell)
    """Rings when a driver came, or anything else changed that anybody may wait for."""
    returned: Bell = field(default_factory=Bell)
    """Rings when a claim was given back."""
