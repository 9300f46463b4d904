"""Every fact that a requirement wants documented is on the page where a reader would look for it.

Rules for this file: a row holds words without which the page would not state the fact. What can be shown by
running something is proven elsewhere.
"""

from __future__ import annotations

import re

import pytest

from dray.gates import GATES
from tests.outside import ROOT
from tests.unit.docs.test_pages import LINK

WORKLOADS = "docs/guides/workloads.md"
PLATFORM = "docs/guides/platform.md"
CLASSIC = "docs/concepts/claim-lifecycle.md"
FEATURES = "docs/concepts/features.md"

SAID = [
    ("K4816-006", WORKLOADS, "They do not promise the best devices of the whole cluster"),
    ("K4816-097", PLATFORM, "remove `firstAvailable` from claims and templates"),
    (
        "K4816-118",
        PLATFORM,
        "They may make scheduling slower, by as many searches as there are alternatives; no time",
    ),
    ("K4816-119", PLATFORM, "drivers that publish devices, and nothing else"),
    ("K5075-164", PLATFORM, "shared devices when slices have `allowMultipleAllocations`"),
    (
        "K3063-001",
        "docs/concepts/cdi.md",
        "claims are independent, and using one does not break the other",
    ),
    ("K3063-018", CLASSIC, "The scheduler has no model of resources"),
    ("K3063-019", CLASSIC, "There is no standard way to publish what is available"),
    ("K3063-020", CLASSIC, 'No class means "some kind of GPU"'),
    ("K3063-034", CLASSIC, "nothing else ever binds a claim to a resource that was created in advance"),
    ("K3063-058", PLATFORM, "claims and classes have no field for secrets"),
    ("K3063-174", PLATFORM, "Vendors are responsible for upgrades and downgrades of their drivers"),
    (
        "K3063-175",
        PLATFORM,
        "when pods have entries in `spec.resourceClaims` and when there are `ResourceClaim`s",
    ),
    ("K5773-009", FEATURES, "are an order and no score"),
    ("K5773-041", FEATURES, "names of slices and pools carry no meaning"),
    (
        "K5491-001",
        WORKLOADS,
        "An attribute with one value cannot express that a device is near two memory nodes",
    ),
    ("K5491-010", WORKLOADS, 'There are no other constraints, no "or", no "not"'),
    (
        "K5491-040",
        "docs/decisions/0006-open-points-of-the-specification.md",
        "`matchSemantics` and `distinctSemantics`",
    ),
    (
        "K5491-043",
        WORKLOADS,
        "the same constraint means something else when a driver turns an attribute into a list",
    ),
    (
        "K5075-024",
        "docs/concepts/preparing.md",
        "Do not change the request policy of a capacity while claims hold",
    ),
    ("K3063-133", "docs/concepts/preparing.md", "`prepare` should do little"),
    (
        "K3063-162",
        WORKLOADS,
        "starts the pod without devices; so a program that needs its device should check",
    ),
]

FEATURE = re.compile(r"^\| [^|]+, `(?P<gate>\w+)` \| `(?P<field>[\w.]+)` \| (?P<uses>.+) \|$", re.MULTILINE)
SWITCHED = ["tests/e2e/test_gates_and_skew.py", "tests/e2e/test_classic_gates.py"]
GROWN = [
    ("DRAPrioritizedList", 3, ("K4816-084", "K4816-086")),
    ("DRAConsumableCapacity", 2, ("K5075-146",)),
    ("DRAListTypeAttributes", 2, ("K5491-036", "K5491-037")),
    ("DRAResourceSlicePriority", 3, ("K5773-032",)),
    ("DRAControlPlaneController", 3, ("K3063-160",)),
]


def _words(page: str) -> str:
    return " ".join((ROOT / page).read_text().replace("\n  ", " ").split())


@pytest.mark.parametrize(
    ("page", "words"),
    [pytest.param(page, words, marks=pytest.mark.req(row), id=row) for row, page, words in SAID],
)
def test_a_page_says_it(page, words):
    assert words in _words(page)


@pytest.mark.parametrize(
    ("gate", "least"),
    [pytest.param(gate, least, id=gate, marks=pytest.mark.req(*ids)) for gate, least, ids in GROWN],
)
def test_a_feature_has_a_switch_that_is_tried_and_uses_that_are_shown(gate, least):
    page = ROOT / FEATURES
    rows = {row["gate"]: row for row in FEATURE.finditer(page.read_text())}
    uses = [page.parent / found["target"] for found in LINK.finditer(rows[gate]["uses"])]
    field = rows[gate]["field"]
    assert len([use for use in uses if field in use.read_text()]) >= least
    assert gate in GATES
    assert any(gate in (ROOT / test).read_text() for test in SWITCHED)


@pytest.mark.req("K3063-157")
def test_one_job_before_a_merge_and_one_every_night_run_the_tests_with_processes():
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^test:.*\bpytest\b", makefile, re.MULTILINE)
    assert 'testpaths = ["tests"]' in (ROOT / "pyproject.toml").read_text()
    assert "exec make test" in (ROOT / ".ci" / "run").read_text()
    assert re.search(r"exec make test\b.*\bfaults\b", (ROOT / ".ci" / "nightly").read_text())
    assert "`.ci/nightly`" in _words("CONTRIBUTING.md")
