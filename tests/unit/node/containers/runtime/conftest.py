"""What tests of runtimes share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.node.containers.runtime.machine import Machine, machine_in


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine on which nothing is left running."""
    with machine_in(tmp_path) as machine:
        yield machine
