"""Two servers as processes on one etcd, with the same keys: for a client they are one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.etcd_server import NO_ETCD, Cluster, binary
from tests.e2e.kubectl import Kubectl
from tests.e2e.server import clean_environment, running


def test_two_servers_are_one_to_their_clients(tmp_path: Path, kubectl_program: str) -> None:
    program = binary(tmp_path)
    if program is None:
        pytest.skip(NO_ETCD)
    etcd = Cluster.of(tmp_path, program)
    for name in ("first", "second", "home"):
        (tmp_path / name).mkdir()
    shared = ("--store", f"etcd://{etcd.endpoints[0]}/two", "--keys", str(tmp_path / "keys"))
    try:
        with running(tmp_path / "first", *shared) as first, running(tmp_path / "second", *shared) as second:
            here, there = (
                Kubectl(kubectl_program, clean_environment(tmp_path / "home", each.kubeconfig), "default")
                for each in (first, second)
            )
            here("create", "configmap", "a")
            with there.beside("get", "cm", "-w", "-o", "name") as watching:
                assert watching.stdout is not None
                assert watching.stdout.readline() == "configmap/a\n"
                here("create", "configmap", "b")
                assert watching.stdout.readline() == "configmap/b\n"
            token = here("create", "token", "default").out.strip()
            said = there("auth", "whoami", f"--token={token}").out
            assert "system:serviceaccount:default:default" in said
    finally:
        etcd.stop()
