"""Search of the reference model: every request, alternative and combination of devices, in order.

Theory of operation: recursion over the requests of all claims. A partial solution is the list of its picks,
and every rule is checked against the whole list again. The first full list is the answer. There is no pruning
but that of Kubernetes itself (too many devices for one claim), so it takes the steps that Kubernetes takes,
and ends in `ModelTooLargeError` after `MAX_STEPS` of them.
"""

from __future__ import annotations

from enum import Enum

from dray.simulation.vectors.answers import AnswerKind
from dray.simulation.vectors.reference.departures import Departure
from dray.simulation.vectors.reference.model_case import (
    ModelAbortError,
    ModelCase,
    ModelTooLargeError,
)
from dray.simulation.vectors.reference.model_rules import ModelPick, ModelRules
from dray.simulation.vectors.reference.pools import ModelCandidate, gather_pools
from dray.simulation.vectors.reference.requests import (
    MAX_RESULTS,
    ModelAlternative,
    ModelChoice,
    read_choices,
)

MAX_STEPS = 400_000
"""Candidates to look at."""


class _SearchResult(Enum):
    """Whether the rest was solved; `OVER` when every alternative needs more devices than a claim can hold."""

    YES = "yes"
    NO = "no"
    OVER = "over"


class ModelSearch:
    """One search."""

    def __init__(self, case: ModelCase, max_steps: int = MAX_STEPS) -> None:
        self._case = case
        self._steps_left = max_steps
        self.view = gather_pools(case)
        self._choices: list[ModelChoice] = []
        self._all_devices: dict[ModelAlternative, list[ModelCandidate]] = {}
        self._rules = ModelRules(case, self.view)

    def run(self) -> tuple[ModelPick, ...] | None:
        """The first solution, if there is one; raises `ModelAbortError` or `ModelTooLargeError`."""
        for number, claim in enumerate(self._case.vector.claims):
            choices = read_choices(self._case, number, claim)
            for choice in choices:
                for alternative in choice.alternatives:
                    self._prepare(alternative)
            least = sum(
                min(self._count_devices(alternative) for alternative in choice.alternatives)
                for choice in choices
            )
            if least < 0:
                raise ModelAbortError("cap out of range", kind=AnswerKind.CRASH)
            if least > MAX_RESULTS:
                raise ModelAbortError(f"number of requested devices {least} exceeds")
            self._choices += choices
        return tuple(self._rules.picks) if self._choose(0) is _SearchResult.YES else None

    def is_faulty(self, candidate: ModelCandidate) -> bool:
        """Whether some request cannot be evaluated on a device."""
        for number, claim in enumerate(self._case.vector.claims):
            for choice in read_choices(self._case, number, claim):
                for alternative in choice.alternatives:
                    try:
                        self._rules.matches(candidate, alternative)
                    except ModelAbortError:
                        return True
        return False

    # --- before the search ---

    def _prepare(self, alternative: ModelAlternative) -> None:
        """Kubernetes lists the devices of `All` beforehand, and aborts where it cannot."""
        if not alternative.takes_all:
            return
        for pool in self.view.pools:
            if pool.flaw and not self._case.departs(Departure.ALL_POOL):
                raise ModelAbortError("asks for all devices", pool.flaw, about="/".join(pool.pool))
            if not self._case.departs(Departure.ALL_UNREACHED):
                for candidate in pool.candidates:
                    self._rules.matches(candidate, alternative)

    def _count_devices(self, alternative: ModelAlternative) -> int:
        if not alternative.takes_all:
            return alternative.spec.count
        if self._case.departs(Departure.ALL_LIMIT):
            return 0
        lazy = self._case.departs(Departure.ALL_UNREACHED)
        return self._count_matching(alternative) if lazy else len(self._list_devices(alternative))

    def _list_devices(self, alternative: ModelAlternative) -> list[ModelCandidate]:
        if alternative not in self._all_devices:
            self._all_devices[alternative] = [
                candidate for candidate in self.view.candidates if self._rules.matches(candidate, alternative)
            ]
        return self._all_devices[alternative]

    # --- requests, alternatives, devices ---

    def _choose(self, index: int) -> _SearchResult:
        """Solve the rest, from a request on."""
        if index == len(self._choices):
            return _SearchResult.YES
        choice = self._choices[index]
        before = sum(pick.alternative.claim_index == choice.claim_index for pick in self._rules.picks)
        ends = set()
        for alternative in choice.alternatives:
            if alternative.takes_all:
                found = self._take_all(index, alternative, before)
            elif before + alternative.spec.count > MAX_RESULTS:
                found = _SearchResult.OVER
            else:
                found = self._take_devices(index, alternative, alternative.spec.count, 0)
            if found is _SearchResult.YES:
                return found
            ends.add(found)
        first = index == 0 or self._choices[index - 1].claim_index != choice.claim_index
        return _SearchResult.OVER if ends == {_SearchResult.OVER} and not first else _SearchResult.NO

    def _take_devices(
        self, index: int, alternative: ModelAlternative, missing: int, start: int
    ) -> _SearchResult:
        if missing <= 0:
            return self._choose(index + 1)
        candidates = self.view.candidates
        for position in range(start, len(candidates)):
            self._count_step()
            candidate = candidates[position]
            if self._rules.is_used(candidate, alternative) or not self._rules.matches(candidate, alternative):
                continue
            if not self._rules.is_free(candidate, alternative) or not self._rules.keeps_constraints(
                candidate, alternative
            ):
                continue
            self._push(candidate, alternative)
            found = self._take_devices(index, alternative, missing - 1, position + 1)
            if found is _SearchResult.YES:
                return found
            self._pop()
            # Other devices do not make fewer of them.
            if found is _SearchResult.OVER:
                return found
        return _SearchResult.NO

    def _take_all(self, index: int, alternative: ModelAlternative, before: int) -> _SearchResult:
        if self.view.flaws:
            return _SearchResult.NO
        try:
            candidates = self._list_devices(alternative)
        except ModelAbortError:
            # More devices than a claim can hold refuse the alternative before any of them is evaluated.
            if before + self._count_matching(alternative) > MAX_RESULTS:
                return _SearchResult.OVER
            raise
        if before + len(candidates) > MAX_RESULTS:
            return _SearchResult.OVER
        mark = len(self._rules.picks)
        if candidates and all(self._add_device(candidate, alternative) for candidate in candidates):
            found = self._choose(index + 1)
            if found is _SearchResult.YES:
                return found
        else:
            found = _SearchResult.NO
        while len(self._rules.picks) > mark:
            self._pop()
        return found

    def _add_device(self, candidate: ModelCandidate, alternative: ModelAlternative) -> bool:
        """Take a device that must be had; Kubernetes aborts when a constraint is against it."""
        self._count_step()
        if self._rules.is_used(candidate, alternative) or not self._rules.is_free(
            candidate, alternative, at_last=True
        ):
            return False
        if not self._rules.keeps_constraints(candidate, alternative):
            if not self._case.departs(Departure.ALL_CONSTRAINT):
                raise ModelAbortError(
                    "because a claim constraint would not be satisfied", about=str(candidate)
                )
            return False
        if not self._rules.has_capacity(candidate, alternative):
            return False
        self._push(candidate, alternative)
        return True

    def _push(self, candidate: ModelCandidate, alternative: ModelAlternative) -> None:
        shared = self._rules.is_shared(candidate)
        self._rules.picks.append(
            ModelPick(
                alternative,
                candidate,
                self._rules.compute_consumed(candidate, alternative) if shared else None,
            )
        )
        if not shared:
            self._rules.used.setdefault(candidate, []).append(alternative.claim_index)

    def _pop(self) -> None:
        pick = self._rules.picks.pop()
        if pick.consumed is None:
            claims = self._rules.used[pick.candidate]
            claims.pop()
            if not claims:
                del self._rules.used[pick.candidate]

    def _count_matching(self, alternative: ModelAlternative) -> int:
        """How many devices match, as far as that can be said."""
        count = 0
        for candidate in self.view.candidates:
            try:
                count += self._rules.matches(candidate, alternative)
            except ModelAbortError:
                continue
        return count

    def _count_step(self) -> None:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise ModelTooLargeError
