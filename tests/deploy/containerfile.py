"""Reads a Containerfile into its stages, so that tests and the replay work from the file itself."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from tests.outside import ROOT

CONTAINERFILE = ROOT / "deploy" / "Containerfile"
KEYWORDS = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "VOLUME", "EXPOSE", "USER", "ENTRYPOINT", "CMD"}


@dataclass(frozen=True)
class Instruction:
    """One instruction: its keyword and the rest of the line."""

    keyword: str
    text: str

    def parse_words(self) -> list[str]:
        """The words of the line; of the JSON form, the list."""
        return json.loads(self.text) if self.text.startswith("[") else self.text.split()


@dataclass(frozen=True)
class Stage:
    """What stands between one FROM and the next."""

    name: str
    base: str
    steps: tuple[Instruction, ...]

    def find(self, keyword: str) -> list[Instruction]:
        return [step for step in self.steps if step.keyword == keyword]


def read_stages(path: Path = CONTAINERFILE) -> list[Stage]:
    """The stages in their order, with the defaults of arguments filled into their bases."""
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for step in read_instructions(path):
        if step.keyword == "ARG" and not stages:
            name, _, value = step.text.partition("=")
            arguments[name] = value
        elif step.keyword == "FROM":
            base, *alias = re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], step.text).split()
            stages.append(Stage(alias[1] if alias else str(len(stages)), base, ()))
        else:
            last = stages[-1]
            stages[-1] = Stage(last.name, last.base, (*last.steps, step))
    return stages


def read_instructions(path: Path) -> list[Instruction]:
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    pairs = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    unknown = {keyword for keyword, _ in pairs} - KEYWORDS
    assert not unknown, f"the replay does not know {unknown}; teach it"
    return [Instruction(keyword, text) for keyword, text in pairs]
