"""Runs the allocator cases: small clusters in YAML, a claim, and every result that is expected of it.

A case has a cluster, claims and the expected result, in the notation of `allocator_notation`.

    case, req      what it shows, and the requirements that it proves
    nodes          names, or names with labels; by default one `node-1`
    devices        the devices of pool `gpu.example.com/node-1`
    pools          devices of several pools, as `driver/pool: devices` or with `at` (a node, `everywhere`,
                   labels), `generation`, `count`, `priority`, `counters`, and `slices` by name
    classes        name and selector; by default one class `gpu` for the driver
    gates          feature gates that differ from their defaults
    taken          devices in use by claim: `ml/old: [gpu-0, gpu-1 memory:7Gi]`; `share` and `admin` are flags
    claim, claims  the claims; those of one pod are solved together

    solved         the devices: all in order, or by request; a share with all it consumes
    chosen         the node that is chosen
    config         the configuration of the allocation
    refused        without `solved`: nothing is found, and why not; beside it: what was refused before.
                   By device (or pool, or request as a whole) the reason; by request where there are several
    fault          a claim that no node can answer: the error
    invalid        validation errors of the objects; by default none
    explains       texts that the explanation contains; every case has some
    hint           all hints of the explanation, each by a part of its text
    events_at_most how long the search may take

`rows` are cases that differ from their parent in some keys. `then` are steps that follow: the cluster stays,
allocated claims keep their devices until they are `released`, and the keys of a step replace earlier ones.

Theory of operation: every object is decoded, defaulted and validated as the API does it, so a case cannot
use objects that a server would refuse. Every solution is verified and validated as a status, share IDs are
unique, and the slices are unchanged afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dray.allocator.allocate import SuccessfulAllocation, allocate
from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.usage import DeviceUsage
from dray.allocator.requests import format_claim_name, normalize_claims
from dray.allocator.search.backtracking import search
from dray.allocator.verify import VerificationInput, verify
from dray.api.codec import encode
from dray.api.core import Node
from dray.api.devices.device_cel import CompiledSelector, compile_selector
from dray.api.meta import ObjectMeta
from dray.api.resource import (
    AllocationResult,
    DeviceClass,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from dray.api.validation import validate_create, validate_status_update, validate_stored
from dray.errors import UnanswerableClaimError
from dray.explain import Diagnosis, DiagnosisVerdict, diagnose, diagnose_fault, render_text
from dray.explain.diagnosis import DeviceName, DeviceOutcome
from dray.explain.rendering.text import format_hint
from tests.cases import allocator_notation as notation
from tests.cases.allocator_notation import DRIVER, CaseError, Document
from tests.tables import table

CLUSTER = ("nodes", "devices", "pools", "classes", "gates")
STEP = (*CLUSTER, "taken", "released", "claim", "claims")
ANSWER = ("solved", "chosen", "config", "refused", "fault", "invalid", "explains", "hint", "events_at_most")
KEYS = ("case", "req", "rows", "then", *STEP, *ANSWER)

Refusals = dict[str, dict[str, str]]
"""Device, pool or request; then for whom; then the reason."""


@dataclass(frozen=True)
class Case:
    """A case with its steps, all rows resolved."""

    name: str
    steps: tuple[Document, ...]


def cases(source: Path) -> Iterator[Case]:
    """The cases of a file, each row on its own."""
    for case in table(source):
        notation.only(case, KEYS, f"{source.name}: {case.get('case')}")
        rows = case.pop("rows", [{}])
        if not rows:
            raise CaseError(f"{source.name}: {case['case']}: no rows")
        for row in rows:
            notation.only(row, KEYS, f"{source.name}: {case['case']}: row")
            whole = {**case, **row}
            steps = (whole, *whole.pop("then", ()))
            proved = dict.fromkeys(id for said in (case, row) for id in notation.listed(said.get("req", [])))
            title = ": ".join(filter(None, (case["case"], row.get("case"))))
            name = " ".join([f"{source.stem}:", *proved, title])
            for step in steps[1:]:
                notation.only(step, KEYS, name)
            yield Case(name, steps)


@dataclass
class StepOutcome:
    """The result of a step."""

    page: str
    hints: list[str]
    verdict: DiagnosisVerdict
    node: str = ""
    results: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    config: list[str] = field(default_factory=list)
    refused: Refusals = field(default_factory=dict)
    fault: str = ""
    invalid: list[str] = field(default_factory=list)
    events: int = 0


class CaseRunner:
    """Runs the steps of a case; the cluster changes from step to step."""

    def __init__(self) -> None:
        self._said: Document = {}
        self._held: dict[str, ResourceClaim] = {}
        self._shares = 0

    def run_step(self, number: int, step: Document) -> StepOutcome:
        """Run a step; the claims it allocates keep their devices from then on."""
        self._said |= {key: step[key] for key in CLUSTER if key in step}
        for name in step.get("released", ()):
            del self._held[name]
        cluster = _CaseCluster(self._said)
        for name, lines in step.get("taken", {}).items():
            self._held[name] = cluster.holder(name, lines)
        asked = step.get("claims") or {"work" if number == 0 else f"work-{number + 1}": step["claim"]}
        claims = [notation.made(notation.claim(name, said)) for name, said in asked.items()]
        outcome, allocations = self._solve(cluster, claims)
        for claim, allocation in zip(claims, allocations, strict=False):
            status = ResourceClaimStatus(allocation=allocation)
            held = msgspec.structs.replace(claim, status=status)
            outcome.invalid += [str(error) for error in validate_status_update(held, claim)]
            self._held[format_claim_name(claim)] = held
        outcome.invalid += self._shared_ids()
        return outcome

    def _shared_ids(self) -> list[str]:
        """Share ids that are there twice."""
        allocations = [claim.status.allocation for claim in self._held.values()]
        results = [result for one in allocations if one is not None for result in one.devices.results]
        ids = [result.share_id for result in results if result.share_id is not None]
        return [f"share id {id} is there twice" for id in set(ids) if ids.count(id) > 1]

    def _solve(
        self, cluster: _CaseCluster, claims: list[ResourceClaim]
    ) -> tuple[StepOutcome, tuple[AllocationResult, ...]]:
        gate_filter = cluster.gate_filter
        held = tuple(self._held.values())
        before = [encode(published) for published in cluster.slices]
        invalid = cluster.complaints(claims, held)
        try:
            admitted = gate_filter.admit_claims(claims)
        except UnanswerableClaimError as fault:
            return _build_outcome(diagnose_fault(fault, claims), invalid), ()
        slices = tuple(gate_filter.admit_slices(cluster.slices))
        inventory = DeviceInventory(
            slices, cluster.classes, DeviceUsage.from_claims(held), gate_filter.build_selector_evaluator()
        )
        diagnosis = diagnose(inventory, admitted, cluster.nodes)
        outcome = _build_outcome(diagnosis, invalid)
        outcome.refused = _refusals(diagnosis, cluster)
        if diagnosis.verdict is DiagnosisVerdict.FAULTY:
            return outcome, ()
        node = next(n for n in cluster.nodes if n.metadata.name == diagnosis.node_reports[0].nodes[0])
        outcome.node = node.metadata.name
        outcome.events = len(
            list(
                search(normalize_claims(admitted, inventory.classes.get), inventory.get_node_view(node).shape)
            )
        )
        answer = allocate(inventory, admitted, node, new_share_id=self._new_share_id)
        if isinstance(answer, SuccessfulAllocation) is not (diagnosis.verdict is DiagnosisVerdict.FITS):
            raise AssertionError(f"allocate and explain disagree: {answer} and {diagnosis.verdict}")
        allocations = answer.results if isinstance(answer, SuccessfulAllocation) else ()
        if allocations:
            given = VerificationInput(
                slices, cluster.classes, held, node, gate_filter.build_selector_evaluator()
            )
            outcome.invalid += [str(finding) for finding in verify(given, admitted, allocations)]
        for claim, allocation in zip(claims, allocations, strict=False):
            results = [(r.request, cluster.line(r)) for r in allocation.devices.results]
            outcome.results[claim.metadata.name] = results
            outcome.config += _config_lines(allocation)
        if [encode(published) for published in cluster.slices] != before:
            raise AssertionError("slices were changed by allocating from them")
        return outcome, allocations

    def _new_share_id(self) -> str:
        self._shares += 1
        return f"00000000-0000-4000-8000-{self._shares:012x}"


class _CaseCluster:
    """The objects of a case, and the short names of its devices."""

    def __init__(self, said: Document) -> None:
        named = said.get("nodes", ["node-1"])
        labelled = named if isinstance(named, dict) else {name: {} for name in named}
        self.nodes = [
            Node(metadata=ObjectMeta(name=name, labels=labels)) for name, labels in labelled.items()
        ]
        pools = dict(said.get("pools", {}))
        if "devices" in said:
            pools[f"{DRIVER}/{self.nodes[0].metadata.name}"] = said["devices"]
        documents = [d for key, pool in pools.items() for d in notation.slices(key, pool, list(labelled))]
        self.slices: tuple[ResourceSlice, ...] = tuple(notation.made(document) for document in documents)
        classes = said.get("classes", {"gpu": f'device.driver == "{DRIVER}"'})
        self.classes: tuple[DeviceClass, ...] = tuple(
            notation.made(notation.device_class(*entry)) for entry in classes.items()
        )
        self.gate_filter = AllocatorGateFilter.from_overrides(said.get("gates", {}))
        self._places = [
            (s.spec.driver, s.spec.pool.name, device.name) for s in self.slices for device in s.spec.devices
        ]

    def short(self, driver: str, pool: str, device: str) -> str:
        """A device by as little of its name as tells it from all others."""
        alike = {place for place in self._places if place[2] == device}
        if len(alike) < 2:
            return device
        same_pool = [place for place in alike if place[1] == pool]
        return f"{pool}/{device}" if len(same_pool) < 2 else f"{driver}/{pool}/{device}"

    def line(self, result: DeviceRequestAllocationResult) -> str:
        """A result as cases write it; a share says all that it consumes."""
        said = [self.short(result.driver, result.pool, result.device)]
        if result.share_id is not None or result.consumed_capacity:
            amounts = [f"{name}:{amount}" for name, amount in sorted(result.consumed_capacity.items())]
            said += amounts or ["share"]
            said += [] if result.share_id is not None else ["without-share-id"]
        return " ".join([*said, *(["admin"] if result.admin_access else [])])

    def holder(self, name: str, lines: Any) -> ResourceClaim:
        """Somebody's claim, allocated long ago."""
        results = []
        for i, line in enumerate(notation.listed(lines)):
            device, *said = line.split()
            places = {place for place in self._places if device in (place[2], self.short(*place))}
            if len(places) != 1:
                raise CaseError(f"`{device}` is taken, but that is {len(places)} devices")
            driver, pool, short = places.pop()
            result: Document = {"request": "x", "driver": driver, "pool": pool, "device": short}
            if "admin" in said:
                result["adminAccess"] = True
            elif said:
                result["shareID"] = f"00000000-0000-4000-9000-{hash_of(name, i):012x}"
                result["consumedCapacity"] = notation.amounts(" ".join(w for w in said if w != "share"))
            results.append({key: value for key, value in result.items() if value})
        claim: ResourceClaim = notation.made(notation.holding(name, results))
        return claim

    def complaints(self, claims: list[ResourceClaim], held: tuple[ResourceClaim, ...]) -> list[str]:
        """What the API says of all objects: of what is new, as if it were written now."""
        found = [error for obj in (*self.slices, *self.classes, *claims) for error in validate_create(obj)]
        found += [error for claim in held for error in validate_stored(claim)]
        return [*map(str, found), *self._uncompiled(claims)]

    def _uncompiled(self, claims: list[ResourceClaim]) -> Iterator[str]:
        asks = [
            ask
            for claim in claims
            for request in claim.spec.devices.requests
            for ask in (request.exactly, *request.first_available)
            if ask is not None
        ]
        for holder in (*(c.spec for c in self.classes), *asks):
            for selector in holder.selectors:
                text = selector.cel.expression if selector.cel is not None else ""
                compiled = compile_selector(text, stored=False, gates=self.gate_filter.gates)
                if not isinstance(compiled, CompiledSelector):
                    yield str(compiled).splitlines()[0]


def hash_of(name: str, position: int) -> int:
    """A number for a share that somebody holds, the same in every run."""
    return int.from_bytes(name.encode()[-4:], "big") * 64 + position


def _build_outcome(diagnosis: Diagnosis, invalid: list[str]) -> StepOutcome:
    fault = diagnosis.fault
    said = f"{fault.field}: {fault.text}" if fault is not None else ""
    page = " ".join(render_text(diagnosis).split())
    hints = [format_hint(hint) for hint in diagnosis.hints]
    return StepOutcome(page, hints, diagnosis.verdict, fault=said, invalid=invalid)


def _refusals(diagnosis: Diagnosis, cluster: _CaseCluster) -> Refusals:
    """Every refusal of the best or closest report: by device, by pool, by request as a whole."""
    found: Refusals = {}
    if not diagnosis.node_reports:
        return found
    report = diagnosis.node_reports[0]

    def note(label: str, accounts: Iterable[DeviceOutcome]) -> None:
        for account in accounts:
            if account.why is not None:
                name = cluster.short(*_place(account.device))
                found.setdefault(name, {})[label] = account.why.reason.value

    for entry in report.found:
        note(entry.label, entry.passed_over)
    for attempt in report.attempts:
        note(attempt.label, attempt.devices)
        if attempt.obstacle is not None and report.fault is None:
            found.setdefault(attempt.request, {})[""] = attempt.obstacle.reason.value
    if report.fault is not None:
        note(report.fault_request, (report.fault,))
    for flaw in report.pools:
        found[f"{flaw.driver}/{flaw.pool}"] = {"": flaw.reason.value}
    return found


def _place(device: DeviceName) -> tuple[str, str, str]:
    return device.driver, device.pool, device.device


def _config_lines(allocation: AllocationResult) -> Iterator[str]:
    for config in allocation.devices.config:
        parameters: Mapping[str, Any] = (
            yaml.safe_load(bytes(config.opaque.parameters)) if config.opaque else {}
        )
        text = " ".join([config.source, *(f"{key}={value}" for key, value in parameters.items())])
        yield f"{text} of {' and '.join(config.requests)}" if config.requests else text
