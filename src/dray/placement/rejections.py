"""Rejections by plugins: why a node or the cluster is not feasible, and what could change that.

A rejection is a value: the plugin, a text that stays the same for the same reason, and the signals that could
change the answer. The scheduler parks a pod under those signals and wakes it by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Topic(StrEnum):
    """A kind of change in the cluster that may help a pending pod."""

    NODES = "nodes"
    """A node was added or changed: labels, taints, allocatable resources."""
    RESOURCES = "resources"
    """A pod ended or left: its node has more free resources."""
    DEVICES = "devices"
    """Devices were published or released, or lost a taint."""
    CLAIM = "claim"
    """A claim was added, changed or deleted; `about` is its namespace/name."""
    CLASS = "class"
    """A device class was added or changed; `about` is its name."""
    POD = "pod"
    """The pod itself changed; `about` is its namespace/name."""


class Signal(NamedTuple):
    """An event, or what a pod waits for; without `about`, any object of the topic."""

    topic: Topic
    about: str = ""


@dataclass(frozen=True, slots=True)
class PluginRejection:
    """The rejection of a node, or of the whole cluster, by a plugin.

    `retry` says that nothing has to change: the search was given up, or a write is on its way; the pod is
    tried again after a while. `searched` says that devices were searched for, and `explain` can tell more.
    `unfinished` says that the plugin has not evaluated yet and works on it: a pod is not refused by that.
    """

    plugin: str
    reason: str
    wake_signals: frozenset[Signal] = frozenset()
    retry: bool = False
    searched: bool = False
    unfinished: bool = False
