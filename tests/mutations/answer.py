"""What is compared of an answer: code, reason, type and field of each cause, warnings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.mutations.case import Case

RECORDING = Path(__file__).parent / "answers" / "kubernetes-1.37.jsonl"


@dataclass(frozen=True)
class Answer:
    """The comparable part of an answer."""

    code: int
    reason: str = ""
    causes: tuple[tuple[str, str], ...] = ()
    """Type and field, sorted and each once."""
    warnings: tuple[str, ...] = ()
    message: str = ""
    """For people who read a difference; not compared, and not on record."""

    @classmethod
    def read(cls, code: int, document: dict[str, Any], warnings: Sequence[str]) -> Self:
        """Take the answer from a response."""
        if document.get("kind") != "Status":
            return cls(code, warnings=tuple(sorted(set(warnings))))
        causes = (document.get("details") or {}).get("causes") or ()
        pairs = {(cause.get("reason", ""), cause.get("field", "")) for cause in causes}
        reason, message = document.get("reason", ""), document.get("message", "")
        return cls(code, reason, tuple(sorted(pairs)), tuple(sorted(set(warnings))), message)

    def is_like(self, other: Answer) -> bool:
        """Whether everything that is compared is the same."""
        return self._compared == other._compared

    @property
    def _compared(self) -> tuple[Any, ...]:
        return self.code, self.reason, self.causes, self.warnings

    def to_row(self) -> list[Any]:
        """The answer as it is recorded; what is empty at the end is left out."""
        row: list[Any] = [self.code, self.reason, [list(cause) for cause in self.causes], list(self.warnings)]
        while len(row) > 1 and not row[-1]:
            row.pop()
        return row

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Self:
        """Read what `to_row` wrote."""
        filler: tuple[Any, ...] = ("", [], [])
        code, reason, causes, warnings = (*row, *filler[len(row) - 1 :])
        return cls(code, reason, tuple((kind, field) for kind, field in causes), tuple(warnings))

    def __str__(self) -> str:
        parts = [f"{self.code} {self.reason}".strip(), *(f"{kind} {field}" for kind, field in self.causes)]
        parts += (f"warning {text!r}" for text in self.warnings)
        return "; ".join(parts)


def load_answers(file: Path = RECORDING) -> dict[str, tuple[str, Answer]]:
    """Digest of the request and answer of each case, by its id."""
    if not file.exists():
        return {}
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {identifier: (digest, Answer.from_row(row)) for identifier, digest, *row in rows}


def save_answers(answers: Sequence[tuple[Case, Answer]], file: Path = RECORDING) -> None:
    """Write the recording, one case a line."""
    file.parent.mkdir(exist_ok=True)
    lines = [
        json.dumps([case.id, case.digest, *answer.to_row()], separators=(",", ":"), ensure_ascii=False)
        for case, answer in answers
    ]
    file.write_text("\n".join(lines) + "\n")
