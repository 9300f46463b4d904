"""Verdicts on vectors: passed, failed, not built, or different in a way that is listed with its reason.

Theory of operation: a list of known differences is data. `differences` names vectors one by one, with our own
answer word for word; an entry that no longer differs is *stale* and fails. `refusals` names errors with which
Kubernetes abandons the whole attempt where we refuse one node: such a vector passes as *refused* when
our search met the reason that goes with the error, on the very device or pool that the error names.
A vector with a field of a feature that dray does not have, and another answer, is counted as not built.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dray.errors import InputError
from dray.sim.vectors import Answer, Kind, Vector

NOT_BUILT_FIELDS: Mapping[str, str] = {
    "compatibilityGroups": "DRADeviceCompatibilityGroups",
    "derivedAttributes": "DRADerivedAttributes",
    "skipNodeOperations": "DRAOptionalNodeOperations",
    "extendedResourceName": "DRAExtendedResource",
    "nodeAllocatableResources": "DRANodeAllocatableResources",
}
"""Fields of gates that dray does not have, and the gates."""


class Standing(StrEnum):
    """What a vector's two answers are to each other."""

    PASSED = "passed"
    REFUSED = "refused where Kubernetes aborts"
    KNOWN = "known to differ"
    NOT_BUILT = "not built"
    FAILED = "failed"
    STALE = "listed as different, but equal"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A vector, our answer, and what it is worth; `because` is the reason on the list."""

    vector: Vector
    ours: Answer
    standing: Standing
    because: str = ""

    @property
    def good(self) -> bool:
        """Whether nobody has to look at it."""
        return self.standing not in (Standing.FAILED, Standing.STALE)


@dataclass(frozen=True, slots=True)
class _Abort:
    """An error of Kubernetes, and the reason of ours that goes with it."""

    error: re.Pattern[str]
    reasons: frozenset[str]
    because: str


@dataclass(frozen=True, slots=True)
class Known:
    """The list of known differences."""

    differences: Mapping[str, tuple[str, str]]
    aborts: tuple[_Abort, ...] = ()

    @classmethod
    def read(cls, document: Any) -> Known:
        """From a document; raises `InputError` when it is no such list."""
        try:
            aborts = tuple(
                _Abort(re.compile(entry["error"]), frozenset(entry["reasons"]), str(entry["because"]))
                for entry in document.get("refusals") or ()
            )
            differences = {
                name: (str(ours), str(entry["because"]))
                for entry in document.get("differences") or ()
                for name, ours in entry["cases"].items()
            }
        except (AttributeError, KeyError, TypeError, re.error) as wrong:
            raise InputError(f"not a list of known differences: {type(wrong).__name__}: {wrong}") from None
        return cls(differences, aborts)

    def judged(self, vector: Vector, ours: Answer) -> Verdict:
        """What our answer to a vector is worth."""
        equal = ours.equals(vector.recorded)
        if vector.name in self.differences:
            expected, because = self.differences[vector.name]
            if equal:
                return Verdict(vector, ours, Standing.STALE, because)
            return Verdict(
                vector, ours, Standing.KNOWN if ours.words == expected else Standing.FAILED, because
            )
        if equal:
            return Verdict(vector, ours, Standing.PASSED)
        if vector.unknown & NOT_BUILT_FIELDS.keys():
            gates = sorted(NOT_BUILT_FIELDS[name] for name in vector.unknown & NOT_BUILT_FIELDS.keys())
            return Verdict(vector, ours, Standing.NOT_BUILT, ", ".join(gates))
        because = self._refused(vector.recorded, ours)
        return Verdict(vector, ours, Standing.REFUSED if because else Standing.FAILED, because)

    def _refused(self, recorded: Answer, ours: Answer) -> str:
        """Why a refusal stands for an error, when it does."""
        if recorded.kind is not Kind.FAULT or ours.kind not in (Kind.REFUSED, Kind.INVALID_POOLS):
            return ""
        for abort in self.aborts:
            found = abort.error.search(recorded.text)
            if found:
                about = found.groupdict().get("about", "")
                if any(reason in abort.reasons and where == about for reason, where in ours.told):
                    return abort.because
        return ""


NONE_KNOWN = Known({})
