"""Events about claims: each thing once."""

from __future__ import annotations

from dray.node.claims.claim_events import ABANDONED, NOT_GIVEN_BACK, NOT_PREPARED, Telling
from dray.node.claims.outcomes import Reason, Waiting
from dray.node.claims.record import DriverPart, Held, User

POD = User(uid="u", namespace="ns", name="pod")


class Notes:
    """What was recorded."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def record(self, about, reason, note, *, warning=False, action=""):
        assert warning
        self.told.append((f"{about.namespace}/{about.name}", reason, note))


def failed(message: str) -> Waiting:
    return Waiting(Reason.PREPARE_FAILED, message)


def test_the_same_thing_is_told_once_and_another_thing_again():
    telling = Telling(notes := Notes())  # type: ignore[arg-type]
    for message in ("no", "no", "other", "no"):
        telling.failed(POD, failed(message))
    assert [note for *_, note in notes.told] == ["no", "other", "no"]


def test_times_addresses_and_identifiers_make_no_news_but_names_do():
    telling = Telling(notes := Notes())  # type: ignore[arg-type]
    for message in (
        "gpu-1 did not answer in 1.5s (pid 12345, at 0xdeadbeef)",
        "gpu-1 did not answer in 30ms (pid 54321, at 0xcafe)",
        "gpu-2 did not answer in 30ms (pid 54321, at 0xcafe)",
    ):
        telling.failed(POD, failed(message))
    assert [note[:5] for *_, note in notes.told] == ["gpu-1", "gpu-2"]


def test_what_ended_and_comes_again_is_told_again():
    telling = Telling(notes := Notes())  # type: ignore[arg-type]
    telling.failed(POD, failed("no"))
    telling.forget("u")
    telling.failed(POD, failed("no"))
    assert len(notes.told) == 2


def test_an_event_is_one_short_line():
    telling = Telling(notes := Notes())  # type: ignore[arg-type]
    telling.failed(POD, failed("no\n\n  really\t" + "ä" * 1000))
    [(_, reason, note)] = notes.told
    assert reason == NOT_PREPARED
    assert note.startswith("no really ää")
    assert note.endswith("…")
    assert len(note.encode()) <= 400


def test_giving_up_is_told_to_the_pods_that_waited():
    telling = Telling(notes := Notes())  # type: ignore[arg-type]
    telling.blocked(POD, failed("driver d is not registered"))
    telling.abandoned(Held(namespace="ns", name="c", leaving=(POD,), parts=(DriverPart(driver="d"),)))
    assert [(who, reason) for who, reason, _ in notes.told] == [
        ("ns/pod", NOT_GIVEN_BACK),
        ("ns/pod", ABANDONED),
    ]
    assert (
        notes.told[1][2] == "devices of claim ns/c were forgotten as asked; driver d did not take them back"
    )
