"""Properties of a diagnosis, on random small clusters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dray.allocator.allocate import run_search
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.refusals import RefusalReason
from dray.allocator.requests import normalize_claims
from dray.allocator.search.backtracking import search
from dray.allocator.search.candidate_review import CandidateReview
from dray.allocator.search.trace import CandidateTaken, DeadEnd, Exhausted, Faulted, Pick, Solved
from dray.api.resource import ResourceClaim
from dray.explain import DiagnosisVerdict, NodeOutcome, diagnose, render_text, summarize, to_document
from tests.unit.explain.cluster import Cluster, attribute, claim, counter_set, first_of, memory, request

DEVICE_FIELDS = st.sampled_from(
    [
        "numa=0",
        "numa=1",
        "size=large",
        "size=small",
        "memory:40Gi",
        "memory:80Gi",
        "shared memory:10Gi",
        "shared memory:10Gi share=ml/old/memory:6Gi",
        "held=ml/old",
        "held=ml/other",
        "taint=a/b:NoSchedule",
        "draws=board/memory:20Gi",
        "",
    ]
)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    cluster = Cluster()
    for name in "abc"[: draw(st.integers(1, 3))]:
        devices = draw(st.lists(st.lists(DEVICE_FIELDS, max_size=3, unique=True), max_size=5))
        lines = "\n".join(f"gpu-{i} {' '.join(words)}" for i, words in enumerate(devices))
        slices = draw(st.sampled_from([1, 1, 1, 2]))
        cluster.node(f"node-{name}", lines, slices=slices, counters=counter_set("board", "memory:40Gi"))
    return cluster


REQUEST_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "count": st.integers(1, 4),
        "all": st.booleans(),
        "where": st.lists(
            st.sampled_from([attribute("size", "large"), memory(">=", "80Gi"), attribute("numa", 1)]),
            max_size=1,
        ),
        "capacity": st.sampled_from(["memory:5Gi", "memory:50Gi"]),
    },
)


@st.composite
def claims(draw: st.DrawFn) -> ResourceClaim:
    requests = []
    for name in "xy"[: draw(st.integers(1, 2))]:
        if draw(st.booleans()):
            requests.append(request(name, **draw(REQUEST_FIELDS)))
        else:
            requests.append(first_of(name, one=draw(REQUEST_FIELDS), two=draw(REQUEST_FIELDS)))
    return claim(
        *requests, same=draw(st.sampled_from(["", "numa"])), different=draw(st.sampled_from(["", "size"]))
    )


OUTCOMES = {Solved: NodeOutcome.FITS, Exhausted: NodeOutcome.REFUSED, Faulted: NodeOutcome.FAULTED}


@given(clusters(), claims())
def test_a_diagnosis_gives_the_answer_of_the_allocator(cluster, asked_claim):
    inventory = cluster.inventory
    found = diagnose(inventory, [asked_claim], cluster.nodes)
    allocation_request = normalize_claims([asked_claim], inventory.classes.get)
    outcomes = {node: report.outcome for report in found.node_reports for node in report.nodes}
    for node in cluster.nodes:
        ending = run_search(allocation_request, cluster.inventory.get_node_view(node).shape)
        assert outcomes[node.metadata.name] is OUTCOMES[type(ending)]
    assert (found.verdict is DiagnosisVerdict.FITS) == (NodeOutcome.FITS in outcomes.values())


@given(clusters(), claims())
def test_the_first_pick_of_the_page_is_the_first_pick_of_the_allocator(cluster, asked_claim):
    found = diagnose(cluster.inventory, [asked_claim], cluster.nodes)
    for report in found.node_reports:
        if report.outcome is NodeOutcome.FITS:
            inventory = cluster.inventory
            node = next(node for node in cluster.nodes if node.metadata.name == report.nodes[0])
            view = inventory.get_node_view(node)
            ending = run_search(normalize_claims([asked_claim], inventory.classes.get), view.shape)
            assert isinstance(ending, Solved)
            picked = [view.locate_device(pick.candidate) for pick in ending.picks]
            assert [found.device.device for found in report.found] == [s.names[i] for s, i in picked]


@given(clusters(), claims())
def test_every_device_of_a_node_that_does_not_fit_is_accounted_for(cluster, asked_claim):
    inventory = cluster.inventory
    for report in diagnose(inventory, [asked_claim], cluster.nodes, hints=0).node_reports:
        if report.outcome is not NodeOutcome.REFUSED:
            continue
        node = next(node for node in cluster.nodes if node.metadata.name == report.nodes[0])
        here = [name for pool_view in inventory.get_node_view(node).pool_views for name in pool_view.names]
        assert report.attempts
        for attempt in report.attempts:
            outcomes = [outcome.device.device for outcome in attempt.devices]
            reasons = [outcome.why.reason for outcome in attempt.devices if outcome.why is not None]
            if attempt.obstacle is None and not attempt.every:
                assert outcomes == here
                assert sum(outcome.why is None for outcome in attempt.devices) == attempt.found
            # Without pruning nothing is left unexplained.
            assert RefusalReason.LEADS_NOWHERE not in reasons


@given(clusters(), claims())
def test_the_review_of_a_point_refuses_what_the_search_refused_there(cluster, asked_claim):
    inventory = cluster.inventory
    allocation_request = normalize_claims([asked_claim], inventory.classes.get)
    for node in cluster.nodes:
        shape = inventory.get_node_view(node).shape
        picks: list[Pick] = []
        for event in search(allocation_request, shape, 200, prune=False):
            if not isinstance(event, CandidateTaken | DeadEnd):
                continue
            point = event.pick.point if isinstance(event, CandidateTaken) else event.point
            here = (point.choice.index, point.device_index)
            picks = [p for p in picks if (p.point.choice.index, p.point.device_index) < here]
            refused = event.refused
            again = CandidateReview(allocation_request, shape, picks).find_refusals(point)
            # A request for all needs any reason; the page gives the first in the order of rules.
            assert all(
                again[i] is not None if point.alternative.takes_all else again[i] == r for i, r in refused
            )
            if isinstance(event, CandidateTaken):
                assert again[event.pick.candidate] is None
                picks.append(event.pick)


@given(clusters(), claims(), st.integers(40, 200))
def test_every_diagnosis_can_be_rendered(cluster, asked_claim, width):
    found = cluster.diagnose(asked_claim)
    assert render_text(found, width)
    assert 0 < len(summarize(found)) <= 256
    assert to_document(found)["kind"] == "Diagnosis"


@given(clusters(), claims())
def test_the_same_question_has_the_same_diagnosis(cluster, asked_claim):
    inventory = cluster.inventory
    first = diagnose(inventory, [asked_claim], cluster.nodes)
    assert diagnose(inventory, [asked_claim], cluster.nodes) == first
    assert diagnose(cluster.inventory, [asked_claim], cluster.nodes[::-1]) == first


@given(clusters(), claims())
def test_a_diagnosis_does_not_change_the_inventory(cluster, asked_claim):
    inventory = cluster.inventory
    diagnose(inventory, [asked_claim], cluster.nodes)
    assert _endings(inventory, cluster, asked_claim) == _endings(cluster.inventory, cluster, asked_claim)


def _endings(
    inventory: DeviceInventory, cluster: Cluster, asked_claim: ResourceClaim
) -> list[tuple[object, ...]]:
    allocation_request = normalize_claims([asked_claim], inventory.classes.get)
    return [
        _summarize_ending(run_search(allocation_request, inventory.get_node_view(node).shape))
        for node in cluster.nodes
    ]


def _summarize_ending(ending: object) -> tuple[object, ...]:
    picks = [pick.candidate for pick in ending.picks] if isinstance(ending, Solved) else []
    return type(ending), picks
