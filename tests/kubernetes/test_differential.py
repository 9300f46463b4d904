"""The life cycles of claims in a cluster of dray and in one of Kubernetes, compared field by field."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.__main__ import main, parse_arguments
from tests.kubernetes.binaries import require_program


@pytest.mark.parametrize("stack", ["dray", "dray-scheduler", "dray-services", "dray-server"])
def test_life_cycles_of_claims_are_the_same(
    stack: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_program("kube-apiserver")
    arguments = ["kubernetes", stack, "--only", "life: *", "--logs", str(tmp_path)]
    assert main(parse_arguments(arguments)) == 0, capsys.readouterr().out
