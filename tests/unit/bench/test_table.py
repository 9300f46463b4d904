"""The table of the scheduler benchmark: what is compared with what, and counts per pod."""

from __future__ import annotations

from bench.scheduler.calls import Calls
from bench.scheduler.counts import Counts, read_counts
from bench.scheduler.figures import Figures
from bench.scheduler.table import (
    build_counts,
    build_row,
    render_calibration,
    render_counts,
    render_footer,
    render_head,
    render_row,
)
from bench.scheduler.workloads import Workload

WORKLOAD = Workload("Some/workload", "burst", 30.0)
DRAY = Figures(100, 1.0, (), (0.01, 0.02), 150.0, 0.3, Counts(800, 900, 5, 250, 900))
PEER = Figures(50, 2.0, (), (0.1, 0.2))
METRICS = """\
# HELP apiserver_request_total Requests answered
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="pods",subresource="",verb="LIST"} 4.0
apiserver_request_total{code="201",resource="pods",subresource="",verb="POST"} 10.0
apiserver_request_total{code="201",resource="pods",subresource="binding",verb="POST"} 9.0
apiserver_request_total{code="409",resource="pods",subresource="binding",verb="POST"} 2.0
apiserver_request_total{code="200",group="resource.k8s.io",resource="resourceclaims",verb="PUT"} 3.0
apiserver_request_total{code="200",group="resource.k8s.io",resource="resourceclaims",verb="PATCH"} 1.0
apiserver_request_total{code="200",resource="pods",subresource="",verb="DELETE"} 1e+02
apiserver_request_total{code="201",group="authentication.k8s.io",resource="tokenreviews",verb="POST"} 77.0
apiserver_request_duration_seconds_count{resource="pods",verb="POST"} 1000.0
apiserver_request_total{code="201",group="dray.dev",resource="transactions",verb="POST"} 7.0
apiserver_request_total{code="409",group="dray.dev",resource="transactions",verb="POST"} 1.0
dray_transaction_requests_total{code="200"} 4.0
dray_transaction_requests_total{code="201"} 16.0
dray_transaction_requests_total{code="409"} 1.0
dray_store_commits_total 147.0
dray_audit_lines_total 148.0
dray_audit_lines_dropped_total 6.0
"""


def cut_columns(line):
    return line[:58].rstrip(), line[58:].split()


def test_counts_are_read_from_the_text_of_the_metrics():
    assert read_counts(METRICS) == Counts(
        writes=110, object_writes=123, refused_writes=3, commits=147, audit_lines=148
    )


def test_counts_of_a_run_are_differences_divided_by_its_pods():
    run = Counts(180, 220, 12, 60, 200) - Counts(100, 120, 2, 20, 50)
    assert run == Counts(80, 100, 10, 40, 150)
    assert run.divide(10) == Counts(8, 10, 1, 4, 15)
    assert run.divide(0) == Counts()


def test_a_row_keeps_the_scaled_ratio_and_that_of_this_run_apart():
    row = build_row(WORKLOAD, DRAY, 0.5, PEER)
    assert (row["kubernetes"], row["scaled_ratio"], row["peer_ratio"]) == (60.0, 100 / 60, 4.0)
    assert row["per_pod"] == {
        "writes": 8,
        "object_writes": 9,
        "refused_writes": 0.05,
        "commits": 2.5,
        "audit_lines": 9,
    }
    peer = row["peer"]
    assert (peer["average"], peer["processor_ms"], peer["megabytes"], peer["per_pod"]) == (
        25.0,
        None,
        None,
        None,
    )


def test_a_row_without_peer_or_recorded_figure_has_no_ratio():
    row = build_row(Workload("Some/workload", "burst", None), DRAY, 0.5)
    assert [row[name] for name in ("kubernetes", "scaled_ratio", "peer_ratio", "peer")] == [None] * 4


def test_a_peer_that_scheduled_nothing_has_no_ratio_but_its_trouble_is_shown():
    row = build_row(WORKLOAD, DRAY, 0.5, Figures(0, 0.0, (), (), trouble="POST /x: 422 no"))
    assert row["peer_ratio"] is None
    assert render_row(row).splitlines()[1].endswith("  POST /x: 422 no")


def test_the_peer_has_a_line_of_its_own_with_empty_columns_for_what_is_not_measured():
    first, second = render_row(build_row(WORKLOAD, DRAY, 0.5, PEER)).splitlines()
    headings = " ".join(cut_columns(render_head())[1])
    assert headings == "pods/s p50 kube* scaled* peer wait p50 p99 ms cpu ms MB writes"
    assert cut_columns(first) == (
        "Some/workload",
        ["100.0", "100.0", "60.0", "1.7", "4.0", "10", "20", "3.00", "150", "8.00"],
    )
    assert cut_columns(second) == ("  the peer, measured in this run", ["25.0", "25.0", "100", "200"])


def test_measured_processes_of_the_peer_fill_its_columns():
    peer = Figures(50, 2.0, (), (0.1, 0.2), 700.0, 1.0)
    second = render_row(build_row(WORKLOAD, DRAY, 0.5, peer)).splitlines()[1]
    assert cut_columns(second)[1] == ["25.0", "25.0", "100", "200", "20.00", "700"]


def test_the_footer_says_what_was_scaled_and_what_was_measured():
    recorded, estimate, peer, *others = render_footer(0.1, "https://a:1").splitlines()
    assert recorded == (
        "* kube, scaled: kube-scheduler as recorded elsewhere, scaled by the calibration loop "
        "(0.100 s here, 0.208 s there), and the ratio to that"
    )
    assert "only `peer` is measured" in estimate
    assert peer == "peer: the ratio to https://a:1, measured in this run"
    assert [line.partition(":")[0] for line in others] == ["writes", "agents"]
    assert not any(line.startswith("peer") for line in render_footer(0.1).splitlines())


def test_the_calibration_is_told_with_what_it_scales():
    line = render_calibration(0.1)
    assert line.startswith(
        "calibration 0.100 s, reference 0.208 s; kube and scaled: figures of kube-scheduler"
    )
    assert line.endswith("not measured in this run")


def test_a_run_with_agents_says_when_all_pods_ran_and_what_the_agents_cost():
    figures = Figures(100, 8.0, (), (0.01,), 150.0, 0.3, agents_processor_seconds=0.5)
    row = build_row(Workload("agents/some", "burst", None, agents=True), figures, 0.5)
    assert row["agents_processor_ms"] == 5.0
    assert render_row(row).endswith("  all run after 8.0 s, agents 5.0 ms each")
    assert build_row(WORKLOAD, DRAY, 0.5)["agents_processor_ms"] is None


def test_counts_of_a_profiled_run_are_per_pod():
    figures = Figures(10, 1.0, (), (), counts=Counts(80, 90, 0, 20, 90), calls=Calls(100_000, 500, 300))
    row = build_counts(figures)
    assert row == {
        "calls": 10_000,
        "encodes": 50,
        "decodes": 30,
        "writes": 8,
        "object_writes": 9,
        "refused_writes": 0,
        "commits": 2,
        "audit_lines": 9,
        "pods": 10,
    }
    _, told, head, line = render_counts({"Some/workload": row}).splitlines()
    assert "no time is told" in told
    assert head.split() == [
        *(
            "workload",
            "calls",
            "encodes",
            "decodes",
            "writes",
            "object",
            "writes",
            "commits",
            "audit",
            "lines",
        )
    ]
    assert cut_columns(line) == ("Some/workload", ["10,000", "50.0", "30.0", "8.0", "9.0", "2.0", "9.0"])


def test_a_run_without_pods_has_no_counts():
    assert set(build_counts(Figures(0, 0.0, (), ())).values()) == {0}
