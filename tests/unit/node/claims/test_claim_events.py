"""Events about claims, each recorded once."""

from __future__ import annotations

from dray.node.claims.claim_events import DEVICES_ABANDONED, PREPARE_FAILED, UNPREPARE_FAILED, PodClaimEvents
from dray.node.claims.outcomes import ClaimsPending, NotReadyReason
from dray.node.claims.record import ClaimUser, DriverPart, RecordedClaim

POD = ClaimUser(uid="u", namespace="ns", name="pod")


class Notes:
    """What was recorded."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def record(self, about, reason, note, *, warning=False, action=""):
        assert warning
        self.told.append((f"{about.namespace}/{about.name}", reason, note))


def failed(message: str) -> ClaimsPending:
    return ClaimsPending(NotReadyReason.PREPARE_FAILED, message)


def test_a_repeated_event_is_recorded_once_until_another_one():
    telling = PodClaimEvents(notes := Notes())  # type: ignore[arg-type]
    for message in ("no", "no", "other", "no"):
        telling.record_prepare_failure(POD, failed(message))
    assert [note for *_, note in notes.told] == ["no", "other", "no"]


def test_times_addresses_and_identifiers_make_no_news_but_names_do():
    telling = PodClaimEvents(notes := Notes())  # type: ignore[arg-type]
    for message in (
        "gpu-1 did not answer in 1.5s (pid 12345, at 0xdeadbeef)",
        "gpu-1 did not answer in 30ms (pid 54321, at 0xcafe)",
        "gpu-2 did not answer in 30ms (pid 54321, at 0xcafe)",
    ):
        telling.record_prepare_failure(POD, failed(message))
    assert [note[:5] for *_, note in notes.told] == ["gpu-1", "gpu-2"]


def test_an_event_is_recorded_again_after_a_success():
    telling = PodClaimEvents(notes := Notes())  # type: ignore[arg-type]
    telling.record_prepare_failure(POD, failed("no"))
    telling.forget("u")
    telling.record_prepare_failure(POD, failed("no"))
    assert len(notes.told) == 2


def test_an_event_is_one_short_line():
    telling = PodClaimEvents(notes := Notes())  # type: ignore[arg-type]
    telling.record_prepare_failure(POD, failed("no\n\n  really\t" + "ä" * 1000))
    [(_, reason, note)] = notes.told
    assert reason == PREPARE_FAILED
    assert note.startswith("no really ää")
    assert note.endswith("…")
    assert len(note.encode()) <= 400


def test_abandoned_devices_are_an_event_of_the_pods_that_waited():
    telling = PodClaimEvents(notes := Notes())  # type: ignore[arg-type]
    telling.record_release_failure(POD, failed("driver d is not registered"))
    telling.record_abandoned(
        RecordedClaim(namespace="ns", name="c", leaving=(POD,), parts=(DriverPart(driver="d"),))
    )
    assert [(who, reason) for who, reason, _ in notes.told] == [
        ("ns/pod", UNPREPARE_FAILED),
        ("ns/pod", DEVICES_ABANDONED),
    ]
    assert notes.told[1][2] == "devices of claim ns/c were abandoned as requested; driver d still has them"
