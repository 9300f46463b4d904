"""Every contract test runs once per back end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.server.admission.change import ADMITTED, AdmissionRule, ObjectChange
from dray.server.admission.rule_table import RuleTable
from tests.contract.backends import NAMES, Backend
from tests.contract.etcd_server import NO_ETCD, Cluster, binary
from tests.contract.running import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    """The addresses of an etcd with one member."""
    folder = tmp_path_factory.mktemp("etcd")
    program = binary(folder)
    if program is None:
        pytest.skip(NO_ETCD)
    cluster = Cluster.of(folder, program)
    yield cluster.endpoints
    cluster.stop()


@pytest.fixture(autouse=True)
def every_rule_out_of_its_scope_admits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call the rules that the table leaves out, too: they must admit every change without adding anything."""
    find = RuleTable.find

    def find_checked(table: RuleTable, change: ObjectChange) -> tuple[AdmissionRule, ...]:
        found = find(table, change)
        for rule in table.rules:
            if rule not in found and any(change.kind in scope.kinds for scope in rule.scopes):
                assert rule.admit(change) == ADMITTED, (type(rule), change.operation, change.request.call)
        return found

    monkeypatch.setattr(RuleTable, "find", find_checked)


@pytest.fixture(params=NAMES)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """One back end after the other."""
    endpoints = request.getfixturevalue("etcd") if request.param == "etcd" else ()
    return Backend(request.param, tmp_path, endpoints)
