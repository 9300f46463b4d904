"""Recorded responses of a Kubernetes server, for tests that compare their form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.outside import corpus_dir


def sample(config: pytest.Config, name: str) -> Any:
    """One recorded answer; the test is skipped when there are none."""
    corpus = corpus_dir(config)
    recorded = corpus.parent / "api-samples" / name if corpus else Path(name)
    if not recorded.is_file():
        pytest.skip(f"no recorded answer `{name}` (api-samples) beside the corpus")
    return json.loads(recorded.read_bytes())
