"""Where the reference material lies that the tests compare against but the repository does not contain.

The corpus (cases with the answers of Kubernetes) and the list of requirements live beside the repository, by
default in `../shared`. Both are optional: a clone without them still tests everything else, and says what it
left out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
"""The root of the repository."""

DEFAULT_CORPUS = ROOT.parent / "shared" / "corpus"

NO_CORPUS = "no reference corpus beside the repository (../shared/corpus); name one with --corpus=DIR"
NO_REQUIREMENTS = "no requirements.json beside the corpus; name one with --requirements=FILE"


def corpus_dir(config: pytest.Config) -> Path | None:
    """The corpus to use, or None when there is none. A corpus that was asked for must exist."""
    asked = config.getoption("--corpus")
    if asked is None:
        return DEFAULT_CORPUS if DEFAULT_CORPUS.is_dir() else None
    chosen = Path(asked).resolve()
    if not chosen.is_dir():
        raise pytest.UsageError(f"--corpus: `{asked}` is not a directory")
    return chosen


def requirements_file(config: pytest.Config) -> Path | None:
    """The list of requirements: the one asked for, or the one beside the corpus."""
    asked = config.getoption("--requirements")
    if asked is not None:
        chosen = Path(asked).resolve()
        if not chosen.is_file():
            raise pytest.UsageError(f"--requirements: `{asked}` is not a file")
        return chosen
    corpus = corpus_dir(config)
    if corpus is None:
        return None
    beside = corpus.parent / "requirements.json"
    return beside if beside.is_file() else None
