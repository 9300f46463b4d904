"""No file of the repository names a machine path, a package registry host, or unfinished work."""

from __future__ import annotations

import re

import pytest

from tests.meta.tree import texts

# One letter of each word is in brackets, so that this file does not find itself.
FORBIDDEN = {
    "a path of one machine": r"(?<![\w./~-])/(?:[w]ork|[r]oot|[t]mp|[o]pt|[h]ome)/\w",
    "a host of a package registry": r"[p]ypi\.|[p]ythonhosted|[n]pmjs|[c]rates\.io|[r]ubygems",
    "an option that names an index": r"--(?:extra-)?[i]ndex-url|--[f]ind-links|--[t]rusted-host",
    "a note about unfinished work": r"\b(?:[T]ODO|[F]IXME|[X]XX|[H]ACK|[N]otImplementedError)\b",
}

BAD_EXAMPLES = {
    "a path of one machine": "see |home|somebody|notes".replace("|", "/"),
    "a host of a package registry": "from " + ".".join(["pypi", "org"]),
    "an option that names an index": "--" + "index-url=x",
    "a note about unfinished work": "# " + "todo: later".upper(),
}

GOOD_EXAMPLES = {
    "a path of one machine": "docs/work/a, ../tmp/b, /var/run/cdi, /usr/bin/env, ./opt/c, the root",
    "a host of a package registry": "a registry of drivers",
    "an option that names an index": "--index 3",
    "a note about unfinished work": "a list of things to do",
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_contains(what):
    pattern = re.compile(FORBIDDEN[what])
    found = [
        f"{path}:{number}: {line.strip()[:100]}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]
    assert not found, f"{what}:\n" + "\n".join(found)


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_pattern_finds_the_bad_example_and_accepts_the_good_one(what):
    assert re.search(FORBIDDEN[what], BAD_EXAMPLES[what])
    assert not re.search(FORBIDDEN[what], GOOD_EXAMPLES[what])
