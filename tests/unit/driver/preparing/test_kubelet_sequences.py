"""Calls that a kubelet made to a kit driver while everything around a container went away, made again.

`kubelet_sequences.txt` has what happened to 120 claims under a kubelet of Kubernetes 1.37, one for each order
of five events, recorded by `tests.faults.living`. The kit must answer the same calls in the same way, and
leave the device alone until the kubelet says that it is not used any more.
"""

from __future__ import annotations

import asyncio
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from tests.unit.driver.driver_node import DRIVER, AgentClient, DriverNode, Gpu, open_driver_node
from tests.unit.driver.driver_server import wait_until
from tests.unit.driver.preparing.test_gone_claims import STAYS, answer_without_preparations

EVENTS = ("agent", "driver", "server", "pod", "claim")
INVISIBLE = ("agent", "server", "pod")
"""What a driver only notices by calls that it gets, or does not get."""


def read_sequences() -> list[list[str]]:
    lines = Path(__file__).with_name("kubelet_sequences.txt").read_text().splitlines()
    return [line.split(", ") for line in lines if line and not line.startswith("#")]


def select_visible(sequence: list[str]) -> tuple[str, ...]:
    return tuple(each for each in sequence if each not in INVISIBLE)


VISIBLE = sorted({select_visible(each) for each in read_sequences()})


def test_every_order_was_recorded() -> None:
    orders = {tuple(each for each in sequence if each in EVENTS) for sequence in read_sequences()}
    assert orders == set(permutations(EVENTS))


def test_the_kubelet_unprepared_once_and_only_after_the_pod_was_deleted() -> None:
    for sequence in read_sequences():
        assert sequence.count("unprepare ok") == 1, sequence
        assert sequence.index("unprepare ok") > sequence.index("pod"), sequence


class Replay:
    """One claim, and a driver that is started again where it was in the recording."""

    def __init__(self, node: DriverNode) -> None:
        self._node, self._gpu = node, Gpu()
        self._uid, self._is_gone, self._is_prepared = "", False, False

    async def run(self, sequence: tuple[str, ...]) -> None:
        self._uid = await self._node.create_claim("c")
        self._node.transport.before = answer_without_preparations
        steps = iter(sequence)
        while await self._run_process(steps):
            pass
        assert [what for what, _ in self._gpu.calls] == ["prepare", "unprepare"]
        assert self._node.cdi() == {}

    async def _run_process(self, steps: Any) -> bool:
        """Run the driver until it is killed in the recording; returns False at the end."""
        self._node.lines.clear()
        async with self._node.run_driver(self._gpu) as agent:
            if self._is_gone and self._is_prepared:
                await wait_until(self._read_log, lambda text: STAYS in text)
            self._check()
            for step in steps:
                if step == "driver":
                    return True
                await self._take(step, agent)
                self._check()
        return False

    async def _take(self, step: str, agent: AgentClient) -> None:
        if step == "claim":
            await self._node.remove_claim("c")
            self._is_gone = True
        elif step == "prepare ok":
            await agent.prepare_ok(self._uid, "c")
            self._is_prepared = True
        else:
            assert step == "unprepare ok"
            await agent.unprepare_ok(self._uid, "c")
            self._is_prepared = False

    async def _read_log(self) -> str:
        return self._node.log_text

    def _check(self) -> None:
        """The device is the claim's as long as the kubelet has not given it back."""
        expected = [f"{DRIVER}_{self._uid}.json"] if self._is_prepared else []
        assert list(self._node.cdi()) == expected


@pytest.mark.parametrize("sequence", VISIBLE, ids=", ".join)
def test_the_driver_leaves_a_device_alone_until_the_kubelet_gives_it_back(sequence: tuple[str, ...]) -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            await Replay(node).run(sequence)

    asyncio.run(scenario())
