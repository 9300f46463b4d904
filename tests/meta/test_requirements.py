"""The ids that tests and cases name are real, and the count of them is right."""

from __future__ import annotations

import pytest

from tests.meta.requirements import Requirement, find_ids_in_cases, ids_of, load, summary


def test_every_named_requirement_exists(named_requirements, requirements):
    unknown = named_requirements - {row.id for row in requirements}
    assert not unknown, f"no such requirement: {', '.join(sorted(unknown))}"


def test_ids_come_alone_or_as_a_list():
    assert ids_of("K1-001") == {"K1-001"}
    assert ids_of(("K1-001", "K1-002")) == {"K1-001", "K1-002"}


@pytest.mark.parametrize("value", [(), [], None, 7, ["K1-001", 7]])
def test_a_req_without_ids_is_a_mistake(value):
    with pytest.raises(ValueError, match="requirement ids"):
        ids_of(value)


def test_cases_name_requirements_at_any_depth(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "one.yaml").write_text(
        "- case: first\n  req: K1-001\n- case: second\n  then: {req: [K1-002, K2-001]}\n---\ncase: no ids\n"
    )
    assert find_ids_in_cases(tmp_path) == {"K1-001", "K1-002", "K2-001"}


def test_the_list_is_read_by_id_and_level(tmp_path):
    source = tmp_path / "requirements.json"
    source.write_text('[{"id": "K1-001", "level": "U", "text": "…"}]')
    assert load(source) == (Requirement("K1-001", "U"),)


def test_the_summary_counts_by_seed_and_level():
    known = [Requirement("K1-001", "U"), Requirement("K1-002", "E"), Requirement("K2-001", "U")]
    assert summary({"K1-001", "K9-999"}, known) == [
        "requirements named by tests: K1 1/2 · K2 0/1 · all 1/3",
        "  level U: K1 1/1 · K2 0/1 · all 1/2",
        "  level E: K1 0/1 · all 0/1",
    ]


def test_the_summary_says_when_it_cannot_compare():
    assert summary({"K1-001"}, []) == [
        "requirements named by tests: 1 (not compared: no list of requirements here)"
    ]
