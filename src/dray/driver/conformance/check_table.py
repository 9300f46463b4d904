"""The checks of the conformance suite, in the order in which they run.

Required is what a kubelet depends on: the text of the protocol, and the calls that a kubelet was seen to
make. It accepts a failed call instead of an error for one claim, no health service, and files that stay
behind. Advised is what is stricter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from dray.driver.conformance import (
    classic_checks,
    prepare_checks,
    registration_checks,
    restart_checks,
    unprepare_checks,
)
from dray.driver.conformance.results import ConformanceLevel

_REQUIRED, _ADVISED = ConformanceLevel.REQUIRED, ConformanceLevel.ADVISED


@dataclass(frozen=True, slots=True)
class ConformanceCheck:
    """A property of a conformant driver, the function that checks it, and a hint for drivers that fail."""

    name: str
    level: ConformanceLevel
    run: Callable[[Any], Awaitable[None]]
    hint: str

    @property
    def title(self) -> str:
        return (self.run.__doc__ or "").strip().splitlines()[0].rstrip(".")


_CHECKPOINT_HINT: Final = "keep prepared claims in a checkpoint file, and answer from that file"
_REFUSE_HINT: Final = (
    "read the claim from the API, compare its uid, and refuse it unless it has an allocation"
)
_CLAIM_ERROR_HINT: Final = "put the reason into the `error` of that claim's entry, and answer the call"

CHECKS: Final = (
    ConformanceCheck(
        "registers",
        _REQUIRED,
        registration_checks.check_registration,
        "agents call GetInfo and NotifyRegistrationStatus at every start",
    ),
    ConformanceCheck(
        "offers",
        _ADVISED,
        registration_checks.check_offered_versions,
        "list every served version in `supported_versions`",
    ),
    ConformanceCheck(
        "unknown-service",
        _ADVISED,
        registration_checks.check_unknown_service,
        "register only the services that are implemented",
    ),
    ConformanceCheck(
        "publishes",
        _REQUIRED,
        registration_checks.check_published_pools,
        "write all slices of a generation, with `resourceSliceCount`",
    ),
    ConformanceCheck(
        "health",
        _REQUIRED,
        registration_checks.check_health,
        "offer the service only when it is served; answer UNIMPLEMENTED when there is nothing to report",
    ),
    ConformanceCheck(
        "health-report",
        _ADVISED,
        registration_checks.check_health_report,
        "send the state of all devices as the first message",
    ),
    ConformanceCheck(
        "prepare",
        _REQUIRED,
        prepare_checks.check_prepare,
        "answer with the results of the allocation that name this driver",
    ),
    ConformanceCheck(
        "prepare-complete",
        _ADVISED,
        prepare_checks.check_prepare_complete,
        "name every device of the allocation, also those without CDI devices: agents report them by it",
    ),
    ConformanceCheck(
        "cdi",
        _REQUIRED,
        prepare_checks.check_cdi_specs,
        "write the file before answering, and each device into one file",
    ),
    ConformanceCheck(
        "cdi-removed",
        _ADVISED,
        prepare_checks.check_cdi_removed,
        "remove the file before answering unprepare",
    ),
    ConformanceCheck(
        "idempotent",
        _REQUIRED,
        prepare_checks.check_idempotent,
        f"{_CHECKPOINT_HINT}; agents call again whenever they are not sure",
    ),
    ConformanceCheck(
        "versions", _REQUIRED, prepare_checks.check_versions, "let one state serve both versions"
    ),
    ConformanceCheck("prepare-unknown", _REQUIRED, prepare_checks.check_prepare_unknown, _REFUSE_HINT),
    ConformanceCheck("error-entries", _ADVISED, prepare_checks.check_error_entries, _CLAIM_ERROR_HINT),
    ConformanceCheck(
        "prepare-unallocated", _REQUIRED, prepare_checks.check_prepare_unallocated, _REFUSE_HINT
    ),
    ConformanceCheck(
        "prepare-replaced",
        _REQUIRED,
        prepare_checks.check_prepare_replaced,
        "compare the uid of the claim with the one asked for",
    ),
    ConformanceCheck(
        "batch",
        _REQUIRED,
        prepare_checks.check_batch,
        "answer with one entry per claim",
    ),
    ConformanceCheck(
        "batch-mixed",
        _ADVISED,
        prepare_checks.check_batch_mixed,
        "treat each claim by itself; one entry per claim, also for refusals",
    ),
    ConformanceCheck(
        "duplicate", _ADVISED, prepare_checks.check_duplicate, "treat claims by their uid, each once"
    ),
    ConformanceCheck(
        "concurrent",
        _REQUIRED,
        prepare_checks.check_concurrent,
        "take a lock per claim; agents may call at the same time",
    ),
    ConformanceCheck(
        "held-device",
        _ADVISED,
        prepare_checks.check_held_device,
        "refuse a device that another claim has until that claim is given back",
    ),
    ConformanceCheck(
        "unprepare",
        _REQUIRED,
        unprepare_checks.check_unprepare,
        "remove everything about the claim, last its entry in the checkpoint",
    ),
    ConformanceCheck(
        "unprepare-twice",
        _REQUIRED,
        unprepare_checks.check_unprepare_twice,
        "a claim that is not prepared is already given back: no error",
    ),
    ConformanceCheck(
        "unprepare-unknown",
        _REQUIRED,
        unprepare_checks.check_unprepare_unknown,
        "a claim that is not prepared is already given back: no error",
    ),
    ConformanceCheck(
        "unprepare-never",
        _REQUIRED,
        unprepare_checks.check_unprepare_never_prepared,
        "a claim that was never prepared needs nothing: no error",
    ),
    ConformanceCheck(
        "force-delete",
        _REQUIRED,
        unprepare_checks.check_force_delete,
        f"{_CHECKPOINT_HINT}; the object may be gone by then",
    ),
    ConformanceCheck(
        "late-prepare",
        _ADVISED,
        unprepare_checks.check_late_prepare,
        "record claims that were given back, with the pods they were reserved for",
    ),
    ConformanceCheck(
        "late-prepare-freed",
        _REQUIRED,
        unprepare_checks.check_late_prepare_deallocated,
        "read the claim again for every prepare",
    ),
    ConformanceCheck(
        "next-pod",
        _REQUIRED,
        unprepare_checks.check_next_pod,
        "another pod in `reservedFor` may use a claim that was given back",
    ),
    ConformanceCheck(
        "restart",
        _REQUIRED,
        restart_checks.check_restart,
        f"{_CHECKPOINT_HINT}, at least until the claim is given back",
    ),
    ConformanceCheck(
        "restart-deleted",
        _REQUIRED,
        restart_checks.check_restart_deleted,
        f"{_CHECKPOINT_HINT}; the object may be gone by then",
    ),
    ConformanceCheck(
        "restart-removed",
        _ADVISED,
        restart_checks.check_restart_removed,
        f"{_CHECKPOINT_HINT}, with the CDI files that were written",
    ),
    ConformanceCheck(
        "restart-held", _ADVISED, restart_checks.check_restart_held, "read at start which devices are held"
    ),
    ConformanceCheck(
        "reboot",
        _ADVISED,
        restart_checks.check_reboot,
        "write the CDI file again when it is missing, whatever the checkpoint says",
    ),
    ConformanceCheck(
        "crash",
        _ADVISED,
        restart_checks.check_crash,
        "write the CDI file again unless its content is complete",
    ),
    ConformanceCheck(
        "in-flight",
        _REQUIRED,
        restart_checks.check_in_flight,
        "record what is being prepared before doing it, and continue at the next start",
    ),
)
"""Every check, in the order in which they run."""

CLASSIC_CHECKS: Final = (
    ConformanceCheck(
        "prepare",
        _REQUIRED,
        classic_checks.check_prepare,
        "answer with the names of CDI devices that are described by then",
    ),
    ConformanceCheck(
        "idempotent",
        _REQUIRED,
        classic_checks.check_idempotent,
        f"{_CHECKPOINT_HINT}; agents call again whenever they are not sure",
    ),
    ConformanceCheck(
        "prepare-unknown", _REQUIRED, classic_checks.check_prepare_unknown, "answer with the code NOT_FOUND"
    ),
    ConformanceCheck(
        "concurrent",
        _REQUIRED,
        classic_checks.check_concurrent,
        "take a lock per claim; agents may call at the same time",
    ),
    ConformanceCheck(
        "unprepare-twice",
        _REQUIRED,
        classic_checks.check_unprepare_twice,
        "a claim that is not prepared is already given back: no error",
    ),
    ConformanceCheck(
        "late-prepare", _ADVISED, classic_checks.check_late_prepare, "read the claim again for every prepare"
    ),
    ConformanceCheck(
        "restart",
        _REQUIRED,
        classic_checks.check_restart,
        f"{_CHECKPOINT_HINT}, at least until the claim is given back",
    ),
    ConformanceCheck(
        "reboot",
        _ADVISED,
        classic_checks.check_reboot,
        "write the CDI file again when it is missing, whatever the checkpoint says",
    ),
)
"""The checks of drivers for classic claims."""
