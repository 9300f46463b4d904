"""The recorded defaults are those of the server of Kubernetes; `DRAY_RECORD=1` writes them anew."""

from __future__ import annotations

import json
import os

import pytest

from tests.contract.recorded_defaults import (
    SETS,
    drop_volatile_fields,
    read_answers,
    read_cases,
    write_answers,
)
from tests.e2e.kubectl import Kubectl


@pytest.mark.parametrize("name", SETS)
def test_kubernetes_stores_what_was_recorded(name: str, kubectl: Kubectl) -> None:
    answers = {}
    for case in read_cases(name):
        created = json.loads(kubectl("create", "-f", "-", "-o", "json", given=case.given).out)
        answers[case.id] = drop_volatile_fields(created)
    if os.environ.get("DRAY_RECORD"):
        write_answers(name, answers)
    assert answers == read_answers(name)
