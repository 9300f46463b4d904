"""`dray lint`: files, output, exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
import pytest

from dray.cli.commands.manifests.lint import command
from dray.cli.input import manifest_files
from dray.cli.input.options import should_use_color
from tests.outside import ROOT
from tests.unit.cli.conftest import Typed, process

SOUND = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu}\n"
DOUBTFUL = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: many}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu, count: 33}}]}}
"""
WRONG = """\
apiVersion: cdi.k8s.io/v1alpha1
kind: ResourceClass
metadata: {name: GPU}
driverName: gpu.example.com
"""
INCOMPLETE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  nodeName: a
  pool: {name: a, generation: 1, resourceSliceCount: 2}
  devices: [{name: gpu-0}]
"""


@pytest.mark.parametrize(
    ("text", "options", "code", "summary"),
    [
        (SOUND, [], 0, "checked 1 object in 1 file: nothing to complain about\n"),
        (DOUBTFUL, [], 0, "checked 1 object in 1 file: 1 warning\n"),
        (DOUBTFUL, ["--strict"], 1, "checked 1 object in 1 file: 1 warning\n"),
        (WRONG, [], 1, "checked 1 object in 1 file: 1 error\n"),
        (INCOMPLETE, ["--strict"], 0, "checked 1 object in 1 file: 1 note\n"),
        (WRONG + "---\n" + DOUBTFUL, [], 1, "checked 2 objects in 1 file: 1 error, 1 warning\n"),
        ("a: [", [], 2, "checked 0 objects in 1 file: 1 error\n"),
        ("", [], 0, "checked 0 objects in 1 file: nothing to complain about\n"),
        (
            SOUND + "---\n{apiVersion: v1, kind: Service}\n---\n{apiVersion: v1, kind: Service}\n",
            [],
            0,
            "checked 1 object in 1 file: nothing to complain about\nnot checked: 2 Service\n",
        ),
    ],
)
def test_exit_code_and_summary(
    text: str, options: list[str], code: int, summary: str, typed: Typed, desk: Path
) -> None:
    (desk / "f.yaml").write_text(text)
    ended = typed("lint", "f.yaml", *options)
    assert ended.code == code
    assert ended.out.endswith(summary)
    assert ended.err == ""
    assert typed("lint", "f.yaml", "-q", *options).out == ended.out.removesuffix(summary)


def test_a_finding_as_people_read_it(typed: Typed, desk: Path) -> None:
    (desk / "pod.yaml").write_text(
        "apiVersion: v1\n"
        "kind: Pod\n"
        "metadata: {name: p, namespace: ml}\n"
        "spec:\n"
        "  resourceClaims:\n"
        "  - name: gpu\n"
        "    source: {resourceClaimName: gpu}\n"
        "  containers:\n"
        "  - name: main\n"
        "    resources: {claims: [{name: gpu}]}\n"
        "    image: web\n"
    )
    assert typed("lint", "pod.yaml").out == (
        "pod.yaml:7:5: error: spec.resourceClaims[0].source: `source` is gone since Kubernetes 1.31; "
        "its fields stand beside `name` [old-claim-source]\n"
        "    7 |     source: {resourceClaimName: gpu}\n"
        "      |     ^\n"
        "      in: Pod ml/p\n"
        "      expected: `name` and one of `resourceClaimName`, `resourceClaimTemplateName`\n"
        "      write instead:\n"
        "        resourceClaims:\n"
        "        - name: gpu\n"
        "          resourceClaimName: gpu\n"
        "\n"
        "checked 1 object in 1 file: 1 error\n"
    )


def test_a_syntax_error_shows_its_place_and_what_came_before_counts(typed: Typed, desk: Path) -> None:
    (desk / "f.yaml").write_text(f"{WRONG}---\nkind:\n\tPod\n")
    ended = typed("lint", "f.yaml")
    assert ended.code == 2
    assert 'f.yaml:3:18: error: metadata.name: Invalid value: "GPU"' in ended.out
    assert (
        "f.yaml:7:1: error: a tab cannot indent YAML; use spaces [syntax]\n    7 |  Pod\n      | ^\n"
        in ended.out
    )


def test_findings_for_machines(typed: Typed, desk: Path) -> None:
    (desk / "f.yaml").write_text(f"{WRONG}---\n{DOUBTFUL}---\n{{apiVersion: v1, kind: Service}}\n")
    ended = typed("lint", "f.yaml", "-o", "json")
    assert ended.code == 1
    answer = json.loads(ended.out)
    assert answer["summary"] == {
        "files": 1,
        "objects": 2,
        "errors": 1,
        "warnings": 1,
        "notes": 1,
        "notChecked": {"Service": 1},
    }
    first = answer["findings"][0]
    assert list(first) == [
        "rule",
        "severity",
        "source",
        "line",
        "column",
        "object",
        "path",
        "message",
        "expected",
        "hint",
        "rewrite",
    ]
    assert (first["rule"], first["severity"], first["line"], first["column"]) == ("invalid", "error", 3, 18)
    assert (first["object"], first["path"]) == ("ResourceClass GPU", "metadata.name")


@pytest.mark.parametrize(("least", "rules"), [("note", 3), ("warning", 2), ("error", 1)])
def test_only_findings_of_a_weight(least: str, rules: int, typed: Typed, desk: Path) -> None:
    (desk / "f.yaml").write_text(f"{WRONG}---\n{DOUBTFUL}---\n{INCOMPLETE}")
    ended = typed("lint", "f.yaml", "--severity", least, "-o", "json")
    assert (ended.code, len(json.loads(ended.out)["findings"])) == (1, rules)


def test_folders_are_searched_in_order_and_hidden_ones_are_not(typed: Typed, desk: Path) -> None:
    for name in ("b.yml", "a.yaml", "sub/c.json", ".git/d.yaml", "sub/.e.yaml", "readme.md"):
        path = desk / "all" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}')
    found = [line.partition(":")[0] for line in typed("lint", "all").out.splitlines() if "[required]" in line]
    assert found == ["all/a.yaml", "all/b.yml", "all/sub/c.json"]


def test_a_file_is_read_once_however_often_it_is_named(typed: Typed, desk: Path) -> None:
    (desk / "f.yaml").write_text(SOUND)
    assert "in 1 file:" in typed("lint", "f.yaml", ".", "./f.yaml").out


def test_a_folder_without_manifests_is_broken_input(typed: Typed, desk: Path) -> None:
    (desk / "empty").mkdir()
    ended = typed("lint", "empty")
    assert (ended.code, ended.err) == (
        2,
        "dray: no manifests in folder `empty`; looked for .yaml, .yml, .json\n",
    )


def test_a_file_that_cannot_be_read_does_not_stop_the_others(typed: Typed, desk: Path) -> None:
    (desk / "a.yaml").symlink_to("nowhere")
    (desk / "b.yaml").write_text(WRONG)
    ended = typed("lint", ".")
    assert ended.code == 2
    assert "a.yaml:1:1: error: cannot read `./a.yaml`: no such file or directory [unreadable]" in ended.out
    assert "b.yaml:3:18: error" in ended.out


def test_a_file_that_never_ends_is_refused(typed: Typed, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_files, "MAX_FILE_BYTES", 2**20)
    ended = typed("lint", os.devnull.replace("null", "zero"))
    assert ended.code == 2
    assert "larger than 1 MiB" in ended.out


def test_standard_input_is_read_and_remembered() -> None:
    ended = process("lint", "-", stdin=f"{SOUND}---\n{SOUND}".encode())
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("<stdin>:7:18: warning: metadata.name: DeviceClass gpu is defined twice")
    assert "see <stdin>:3:18 [duplicate-object]\n    7 | metadata: {name: gpu}\n" in ended.out


def test_bytes_that_are_no_text() -> None:
    ended = process("lint", "-", stdin=b"a: \xff\xfe\n")
    assert ended.code == 2
    assert "<stdin>:1:4: error: not UTF-8 text: byte 0xff [syntax]" in ended.out


def test_gates_are_switched(typed: Typed, desk: Path) -> None:
    (desk / "f.yaml").write_text(INCOMPLETE.replace("gpu-0", "gpu-0, allowMultipleAllocations: true"))
    assert "allowMultipleAllocations" not in typed("lint", "f.yaml").out
    ended = typed("lint", "f.yaml", "--feature-gates", "DRAConsumableCapacity=false")
    assert ended.code == 0
    assert "warning: spec.devices[0].allowMultipleAllocations: dropped" in ended.out


def test_what_a_file_says_cannot_steer_the_terminal(typed: Typed, desk: Path) -> None:
    (desk / "f.json").write_text(
        json.dumps(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceClass",
                "metadata": {"name": "a", "\x1b[2J": 1},
            }
        )
    )
    ended = typed("lint", "f.json")
    assert "unknown field `\\u001b[2J`" in ended.out
    assert "\x1b[2J" not in ended.out


@pytest.mark.parametrize(
    ("choice", "terminal", "no_color", "answer"),
    [
        ("auto", True, False, True),
        ("auto", True, True, False),
        ("auto", False, False, False),
        ("always", False, True, True),
        ("never", True, False, False),
    ],
)
def test_when_to_colour(choice: str, terminal: bool, no_color: bool, answer: bool) -> None:
    assert should_use_color(choice, terminal=terminal, no_color=no_color) is answer


def test_colour_changes_no_text(desk: Path) -> None:
    (desk / "f.yaml").write_text(WRONG)
    plain = process("lint", "f.yaml", folder=desk)
    coloured = process("lint", "f.yaml", "--color", "always", folder=desk)
    assert "\x1b[" not in plain.out
    assert "\x1b[" in coloured.out
    assert click.unstyle(coloured.out) == plain.out


def test_the_examples_of_the_specification_are_sound() -> None:
    ended = process("lint", "--complete", "--strict", "examples/seeds", folder=ROOT)
    assert ended.code == 0, ended.out


def test_every_parameter_is_reported() -> None:
    options = [option for option in command.params if isinstance(option, click.Option)]
    assert [option.name for option in options if not option.help] == []
