"""Recordings: what a cluster made of scenarios, in lines of JSON; one can stand for its cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from tests.differential.scenario import Scenario

SUFFIX = ".jsonl"


class ScenarioSide(Protocol):
    """One side of a comparison: a cluster, or the recording of one."""

    async def check(self) -> str:
        """Return the version of the server."""

    async def run_scenario(self, scenario: Scenario) -> list[Any]:
        """Return the pictures after each step."""

    async def close(self) -> None: ...


class MissingRecordingError(Exception):
    """A scenario that is not on record, or was changed since."""


@dataclass(frozen=True)
class Recording:
    """The pictures of a cluster by the digest of the scenario: one that was changed is not on record."""

    about: Mapping[str, str]
    pictures: Mapping[str, list[Any]]

    @classmethod
    def load(cls, file: Path) -> Self:
        first, *lines = map(json.loads, file.read_text("utf-8").splitlines())
        return cls(first, {line["digest"]: line["pictures"] for line in lines})

    def has(self, scenario: Scenario) -> bool:
        return scenario.digest in self.pictures

    async def check(self) -> str:
        return self.about["version"]

    async def run_scenario(self, scenario: Scenario) -> list[Any]:
        if not self.has(scenario):
            raise MissingRecordingError(f"{scenario.name}: not on record, or changed since: record it again")
        return self.pictures[scenario.digest]

    async def close(self) -> None:
        """A recording holds nothing open."""


class Recorder:
    """A side that writes down what came of every scenario."""

    def __init__(self, side: ScenarioSide, file: Path, cluster: str) -> None:
        self._side = side
        self._file = file
        self._cluster = cluster

    async def check(self) -> str:
        version = await self._side.check()
        self._write({"cluster": self._cluster, "version": version}, mode="w")
        return version

    async def run_scenario(self, scenario: Scenario) -> list[Any]:
        pictures = await self._side.run_scenario(scenario)
        self._write({"scenario": scenario.name, "digest": scenario.digest, "pictures": pictures})
        return pictures

    async def close(self) -> None:
        await self._side.close()

    def _write(self, line: Mapping[str, Any], mode: str = "a") -> None:
        with self._file.open(mode, encoding="utf-8") as lines:
            lines.write(json.dumps(line, sort_keys=True, separators=(",", ":")) + "\n")
