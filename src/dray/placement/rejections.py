"""What plugins answer: why not, and what would have to happen before asking again is worth it.

A verdict is a value: the plugin, words that stay the same for the same reason, and the signals that could
change its mind. The scheduler parks a pod under those signals and wakes it by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Topic(StrEnum):
    """What in the cluster may change in a way that helps a waiting pod."""

    NODES = "nodes"
    """A node came, or became other than it was: labels, taints, what it can give."""
    RESOURCES = "resources"
    """A pod ended or left: its node has more free resources."""
    DEVICES = "devices"
    """Devices were published, given back, or lost a taint."""
    CLAIM = "claim"
    """A claim came, changed or went; `about` is its namespace/name."""
    CLASS = "class"
    """A device class came or changed; `about` is its name."""
    POD = "pod"
    """The pod itself changed; `about` is its namespace/name."""


class Signal(NamedTuple):
    """Something that happened, or that a pod waits for; `about` is empty when any of the topic will do."""

    topic: Topic
    about: str = ""


@dataclass(frozen=True, slots=True)
class PluginRejection:
    """A plugin's no, for a node or for the whole cluster.

    `retry` says that nothing has to change: the search was given up, or a write is on its way; the pod is
    tried again after a while. `searched` says that devices were searched for, and `explain` can tell more.
    `unfinished` says that the plugin has not judged yet and works on it: a pod is not refused by that.
    """

    plugin: str
    reason: str
    wake_signals: frozenset[Signal] = frozenset()
    retry: bool = False
    searched: bool = False
    unfinished: bool = False
