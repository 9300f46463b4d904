"""ACME's classic driver for GPUs whose memory is given out in parts: both of its parts in one program.

    python -m tests.e2e.programs.acme controller
    python -m tests.e2e.programs.acme --node NODE

`ACME_GPUS` says how much memory the GPU of a node has: `node-a=4Gi`. Nodes that are not mentioned have none.
Below `ACME_ROOT` are the files of the vendor's image, such as the commands with which an administrator has
GPUs initialised, and in `parts` what belongs to each claim.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from dray.driver import ClassicClaim, ClassicDriver, Quantity, Ready, run
from dray.driver.classic.controller import (
    ClassicAllocation,
    ClassicClaimRequest,
    ClassicController,
    HeldClaim,
    NoAllocationAvailable,
)

NAME = "gpu.acme.com"
NONE = Quantity.parse("0")


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What users may write into a claim."""

    memory: str
    optional: bool = False
    """Whether the workload can do without."""


class Setup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What administrators write into a class."""

    init_command: list[str] = []


class Gpus(ClassicController):
    """Gives parts of GPUs to claims."""

    name = NAME
    parameters = Wish
    class_parameters = Setup

    def unsuitable_nodes(
        self, need: ClassicClaimRequest, nodes: Sequence[str], held: Sequence[HeldClaim]
    ) -> Collection[str]:
        """Whoever can do without may go anywhere when there is nothing left."""
        free, wish = self._free_memory(held), need.parameters
        short = [name for name in nodes if free.get(name, NONE) < Quantity.parse(wish.memory)]
        return () if wish.optional and len(short) == len(nodes) else short

    def allocate(
        self, need: ClassicClaimRequest, node: str | None, held: Sequence[HeldClaim]
    ) -> ClassicAllocation | NoAllocationAvailable:
        wish = need.parameters
        if node is not None and self._free_memory(held).get(node, NONE) >= Quantity.parse(wish.memory):
            command = [] if need.class_parameters is None else need.class_parameters.init_command
            return ClassicAllocation(node, {"memory": wish.memory, "init": json.dumps(command)})
        return (
            ClassicAllocation(node)
            if wish.optional
            else NoAllocationAvailable(f"less than {wish.memory} is left")
        )

    def _free_memory(self, held: Sequence[HeldClaim]) -> Mapping[str, Quantity]:
        free = {
            node: Quantity.parse(size)
            for node, size in (word.split("=") for word in os.environ["ACME_GPUS"].split(","))
        }
        for each in held:
            if "memory" in each.attributes:
                free[each.node] -= Quantity.parse(each.attributes["memory"])
        return free


class Gpu(ClassicDriver):
    """Initialises what a claim has of a GPU, and shows it to containers."""

    name = NAME
    parameters = Wish
    controller = Gpus

    def prepare(self, claim: ClassicClaim) -> Iterator[Ready]:
        if "memory" not in claim.attributes:
            return  # a claim that had to do without
        part = self._part(claim)
        part.mkdir(parents=True, exist_ok=True)
        command = json.loads(claim.attributes["init"])
        if command:
            program = f"{os.environ['ACME_ROOT']}{command[0]}"
            subprocess.run([program, *command[1:]], cwd=part, check=True, timeout=20)
        yield Ready(env={"ACME_MEMORY": claim.attributes["memory"], "ACME_PART": str(part)})

    def unprepare(self, claim: ClassicClaim) -> None:
        shutil.rmtree(self._part(claim), ignore_errors=True)

    def _part(self, claim: ClassicClaim) -> Path:
        return Path(os.environ["ACME_ROOT"]) / "parts" / claim.uid


if __name__ == "__main__":
    run(Gpu)
