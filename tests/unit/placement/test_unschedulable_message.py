"""Why a pod has no node, in one line."""

from __future__ import annotations

from dray.explain import at_once, summary
from dray.placement.rejections import Verdict
from dray.placement.scheduling_cycle import Refused, Unplaceable, place
from dray.placement.unschedulable_message import LONGEST, diagnosis_of, named, why
from tests.brute import making as make
from tests.property.test_placement_law import OPEN
from tests.unit.placement.claimed import claim, cluster, devices_only, having, models, wanting


def refused(subject: object, snapshot: object) -> Unplaceable:
    _, profile = devices_only()
    found = place(snapshot, subject, profile)  # type: ignore[arg-type]
    assert isinstance(found, Unplaceable)
    return found


def test_devices_are_told_in_the_words_of_the_explanation() -> None:
    found = refused(wanting(claim()), cluster({"a": ()}))
    told = at_once(diagnosis_of(found, OPEN))
    assert told is not None
    assert why(found, OPEN) == summary(told)
    assert why(found, OPEN) == why(refused(wanting(claim()), cluster({"a": ()})), OPEN)


def test_an_empty_cluster_says_so() -> None:
    assert why(refused(wanting(claim()), cluster({})), OPEN) == "there are no nodes"


def test_what_is_elsewhere_is_told_with_its_nodes() -> None:
    subject = wanting(having(claim(), "z/d0", where="z"))
    found = refused(subject, cluster({"a": (), "b": (), "c": ()}))
    assert why(found, OPEN) == "a, b and 1 more: claim ml/c has its devices elsewhere"


def test_a_claim_called_elsewhere_is_explained_all_the_same() -> None:
    found = refused(wanting(claim(name="elsewhere")), cluster({"a": ()}))
    assert "no node can satisfy claim ml/elsewhere" in why(found, OPEN)


def test_other_plugins_follow_the_devices() -> None:
    found = refused(wanting(claim()), cluster({"a": ()}))
    full = Refused(Verdict("NodeResourcesFit", "too little cpu"), ("x", "y"))
    both = Unplaceable(found.subject, (*found.refused, full), found.snapshot)
    assert why(both, OPEN) == f"{why(found, OPEN)}; x, y: too little cpu"


def test_a_verdict_about_the_whole_cluster_stands_alone() -> None:
    asked = claim(make.request("r", device_class="missing"))
    found = refused(wanting(asked), cluster({"a": models("x")}))
    assert "missing" in why(found, OPEN)
    assert at_once(diagnosis_of(found, OPEN)) is None


def test_it_fits_into_an_event() -> None:
    found = refused(wanting(claim()), cluster({"a": ()}))
    long = Refused(Verdict("Stub", "x" * 3000), ("a",))
    text = why(Unplaceable(found.subject, (*found.refused, long), found.snapshot), OPEN)
    assert len(text) == LONGEST
    assert text.endswith("…")


def test_many_nodes_are_counted() -> None:
    assert named(["a"]) == "a"
    assert named(["a", "b"]) == "a, b"
    assert named(list("abcd")) == "a, b and 2 more"
