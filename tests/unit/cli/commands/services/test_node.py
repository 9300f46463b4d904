"""`dray node`: its options, and one-line errors about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.cli.app import run
from dray.cli.commands.services.node import _build_options, _parse_pairs
from dray.cluster.services.node_agents import NodeOptions, build_runtime
from dray.errors import InputError


def test_the_usual_choices() -> None:
    from dray.node.containers.cdi import DEFAULT_DIRECTORIES

    given = {"name": "", "root": Path("r"), "cdi": (), "labels": ("a=b,c=d",), "capacity": ("cpu=4",)}
    options = _build_options({**given, "log_level": "info", "log_format": "text", "runtime": "fake"})
    assert options.name
    assert options.cdi == DEFAULT_DIRECTORIES
    assert options.labels == {"a": "b", "c": "d"}
    assert options.capacity == {"cpu": "4"}


def test_pairs_are_read_and_wrong_ones_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert _parse_pairs(["a=b", "c=d=e"], "--label") == {"a": "b", "c": "d=e"}
    assert run(["node", "--label", "rack", "--kubeconfig", "/nowhere/at/all"]) == 2
    assert "dray: " in capsys.readouterr().err


def test_the_help_names_what_survives(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["node", "--help"]) == 0
    out = capsys.readouterr().out
    for word in ("--plugins-registry", "--cdi-dir", "--runtime", "abandon-devices", "--stop-pods"):
        assert word in out


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


def test_a_root_whose_socket_paths_are_too_long_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config"
    file.write_text(KUBECONFIG)
    long = tmp_path / ("x" * 100)
    for options in (["--root", str(long)], ["--root", str(tmp_path), "--plugins-registry", str(long)]):
        assert run(["node", "--kubeconfig", str(file), *options]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"dray: no driver can register in `{long}")
        assert said.endswith("choose a shorter --root or --plugins-registry\n")
        assert said.count("\n") == 1
    assert not long.exists()


def test_the_oci_runtime_needs_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give them with --rootfs"):
        build_runtime(NodeOptions("n", tmp_path, runtime="oci"))
