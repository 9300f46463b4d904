"""A small fuzz run with every test run, and proof that the fuzzer finds what is there to find."""

from __future__ import annotations

from random import Random

import pytest

from dray.api import codec
from dray.api.json_text import read_json
from dray.api.strategies.defaults import apply_defaults
from dray.api.validation import validate_create, validate_stored
from dray.errors import DecodeError
from tests.fuzz import __main__ as command
from tests.fuzz import campaign, input_checks
from tests.fuzz.mutations import MUTATIONS, broken, places
from tests.fuzz.raw_bytes import WAYS, raw
from tests.fuzz.valid_documents import TIME, in_every_version, sound


@pytest.mark.parametrize("mode", campaign.MODES)
def test_two_thousand_broken_inputs_do_no_harm(mode):
    report = campaign.run(mode, "default", 0, 2000)
    assert [(failure.index, failure.signature, failure.error) for failure in report.failures] == []
    assert report.passed == 2000


def test_inputs_are_refused_and_taken_in_good_measure():
    outcomes = campaign.run("structured", "measure", 0, 400).outcomes
    assert outcomes["structured: refused"] > 100
    assert outcomes["structured: decoded"] > 50
    assert outcomes["structured: decoded, with unknown fields"] > 10


@pytest.mark.parametrize("document", in_every_version(), ids=lambda d: f"{d['apiVersion']}-{d['kind']}")
def test_what_the_broken_ones_are_made_from_is_sound(document):
    decoded = codec.decode_document(document)
    obj = apply_defaults(decoded.object, now=TIME)
    assert decoded.unknown_fields == ()
    assert (validate_create(obj), validate_stored(obj)) == ([], [])


def test_inputs_depend_on_seed_and_number_alone():
    for mode in campaign.MODES:
        first, again = campaign.make_input(mode, "s", 7)[0], campaign.make_input(mode, "s", 7)[0]
        assert campaign.format_input(first) == campaign.format_input(again)
        assert campaign.format_input(first) != campaign.format_input(campaign.make_input(mode, "s", 8)[0])


@pytest.mark.parametrize("change", [change for _, change in MUTATIONS], ids=lambda change: change.__name__)
def test_every_mutation_breaks_something_and_leaves_the_original_alone(change):
    differs = False
    for seed in range(30):
        random = Random(seed)
        document = sound(random)
        before = campaign.format_input(document)
        changed = change(random, document, random.choice(places(document)))
        assert campaign.format_input(document) == before
        differs = differs or campaign.format_input(changed) != before
    assert differs


@pytest.mark.parametrize("make", [make for _, make in WAYS], ids=lambda make: make.__name__)
def test_every_way_of_making_bytes_makes_bytes(make):
    assert {type(make(Random(seed))) for seed in range(20)} == {bytes}


def _refuse_a_label(document):
    """A decoder with a bug: it stumbles over one label."""
    metadata = document.get("metadata")
    if isinstance(metadata, dict) and "labels" in metadata:
        raise KeyError("labels")
    raise DecodeError("no")


def test_an_exception_is_found_and_its_input_made_small(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(codec, "decode_document", _refuse_a_label)
    monkeypatch.setattr(codec, "decode", lambda data: _refuse_a_label(read_json(data)))
    report = campaign.run("structured", "planted", 0, 30)
    (failure,) = [found for found in report.failures if found.signature.startswith("KeyError")]
    assert report.failed > 5
    small = campaign.small(failure, "planted")
    assert set(small) == {"metadata"}
    assert set(small["metadata"]) == {"labels"}
    assert campaign.save_input(tmp_path, "x", small).read_bytes().startswith(b'{"metadata":{"labels":')


def test_a_broken_law_is_found(monkeypatch):
    monkeypatch.setattr(
        input_checks, "apply_defaults", lambda obj, *, now: codec.decode(codec.encode(obj)).object
    )
    report = campaign.run("structured", "planted", 0, 50)
    assert "law: filling twice fills more" in {failure.signature for failure in report.failures}


def test_bytes_that_fail_are_made_small(monkeypatch):
    def stumble(data: bytes) -> None:
        if b"apiVersion" in data:
            raise IndexError

    monkeypatch.setattr(input_checks, "find_duplicate_fields", stumble)
    report = campaign.run("raw", "planted", 0, 30)
    (failure,) = [found for found in report.failures if found.signature.startswith("IndexError")]
    assert campaign.small(failure, "planted") == b"apiVersion"


def test_an_input_that_takes_for_ever_is_found(monkeypatch):
    def dawdle(_data: bytes) -> None:
        while True:
            pass

    monkeypatch.setattr(input_checks, "find_duplicate_fields", dawdle)
    monkeypatch.setattr(campaign, "LONGEST", 0.05)
    report = campaign.run("raw", "planted", 0, 2)
    (failure,) = report.failures
    assert (report.failed, failure.signature) == (2, campaign.TOO_SLOW)
    assert campaign.small(failure, "planted") == campaign.make_input("raw", "planted", 0)[0]


def test_the_command_counts_and_ends_well(capsys, tmp_path):
    arguments = ["--structured", "30", "--raw", "30", "--seed", "1", "--jobs", "1", "--out", str(tmp_path)]
    assert command.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("seed 1")
    assert lines[-1] == "60 passed, 0 failed"
    assert command.main(["--seed", "1", "--only", "raw:7", "--jobs", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed"


def test_what_json_cannot_hold_is_saved_as_python(tmp_path):
    assert campaign.save_input(tmp_path, "x", {1: float("nan")}).read_text() == "{1: nan}"
    assert campaign.save_input(tmp_path, "y", b"\xff").read_bytes() == b"\xff"


def test_broken_documents_and_bytes_come_in_many_kinds():
    assert len({campaign.format_input(broken(Random(i))) for i in range(200)}) > 150
    assert len({raw(Random(i)) for i in range(200)}) > 190
