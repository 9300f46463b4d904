"""The claim office of a node: has the claims of pods prepared before they run, and given back after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dray.api.core import Container, Node, Pod
from dray.client.client import Client
from dray.client.events import EventRecorder
from dray.client.tempo import Tempo
from dray.node.answers import Ready, Refusal, Waiting
from dray.node.drivers import DriverLine
from dray.node.plan import InHand
from dray.node.record import EMPTY, Record, User

ABANDON = "dray.dev/abandon-devices"
"""On a pod or a node, with the value `true`: forget devices that no driver takes back."""


@dataclass(frozen=True, slots=True)
class OfficeChoices:
    """What a claim office is told."""

    node: Callable[[], Node]
    """The node as it was last seen: its name, labels and annotations."""
    checkpoint: Path
    drivers: Callable[[], Mapping[str, DriverLine]]
    """Who is registered now."""
    boot_id: str
    tempo: Tempo = field(default_factory=Tempo)
    crash: Callable[[str], None] = lambda point: None
    """Called at points where tests let the agent die."""


class Claims:
    """The claims of the pods of one node.

    First `awaken` with the pods bound to the node, then `run` beside everything else. For a pod: `prepare`
    until it is `Ready`, with `pause` in between; `release` until it returns None, with `pause` in between,
    after its containers have ended and before it is reported to be over. Pods in `users` that the API does
    not know any more are released as well.
    """

    def __init__(self, client: Client, recorder: EventRecorder, choices: OfficeChoices) -> None:
        self.record: Record = EMPTY

    async def awaken(self, pods: tuple[Pod, ...]) -> None:
        """Take up what an earlier agent left; `pods` are all pods bound to this node.

        `dray.durable.Newer` when the checkpoint is of a later version: then the agent must not start.
        """
        raise AssertionError

    async def run(self) -> None:
        """Give back what no pod waits for, until cancelled; and keep the calls that are under way."""
        raise AssertionError

    async def prepare(self, pod: Pod) -> Ready | Refusal | Waiting:
        """Have the claims of a pod prepared: one attempt; anything but `Ready` is told in an event."""
        raise AssertionError

    async def release(self, pod_uid: str, *, abandon: bool = False) -> Waiting | None:
        """Give back what a pod was the last to use: one attempt; None when nothing of it is left.

        The pod's containers must have ended. With `abandon`, what no driver takes back is forgotten.
        """
        raise AssertionError

    async def pause(self, pod_uid: str) -> None:
        """Wait until another attempt for a pod makes sense: growing waits, cut short when a driver came, or
        a claim was given back."""
        raise AssertionError

    def nudge(self) -> None:
        """Something changed (a driver registered, a pod or claim changed): end all pauses."""
        raise AssertionError

    def users(self) -> Mapping[str, User]:
        """The pods that use claims here, or wait for one to be given back, by uid."""
        raise AssertionError

    def is_held(self, pod_uid: str) -> bool:
        """Whether a pod uses claims here or waits for one to be given back."""
        raise AssertionError

    def cdi(self, pod_uid: str, container: Container) -> tuple[str, ...]:
        """The qualified names of the CDI devices a container gets; the pod must be `Ready`."""
        raise AssertionError

    def devices(self, pod_uid: str, container: Container) -> tuple[InHand, ...]:
        """The devices a container has, for health in its status."""
        raise AssertionError
