"""`dray convert`: forth and back, in place, and never half."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.outside import ROOT
from tests.unit.cli.conftest import Typed, process

OLD = """\
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata:
  name: c
spec:
  devices:
    requests:
    - name: gpu
      deviceClassName: gpu
      count: 2
"""
NEW = OLD.replace("v1beta1", "v1").replace(
    "      deviceClassName: gpu\n      count: 2\n",
    "      exactly:\n        deviceClassName: gpu\n        count: 2\n",
)
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: p
spec:
  resourceClaims:
  - name: gpu
    source:
      resourceClaimName: gpu
  containers:
  - name: main
    resources:
      claims:
      - gpu
"""
POD_TODAY = POD.replace("    source:\n      resourceClaimName", "    resourceClaimName").replace(
    "- gpu\n", "- name: gpu\n"
)


def documents(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize("version", ["v1", "resource.k8s.io/v1"])
def test_to_v1(version: str, typed: Typed, desk: Path) -> None:
    (desk / "f.yaml").write_text(OLD)
    ended = typed("convert", "--to", version, "f.yaml")
    assert (ended.code, ended.out, ended.err) == (0, NEW, "")


def test_to_v1beta1_and_v1beta2(typed: Typed, desk: Path) -> None:
    (desk / "f.yaml").write_text(NEW)
    assert typed("convert", "--to", "v1beta1", "f.yaml").out == OLD
    assert typed("convert", "--to", "v1beta2", "f.yaml").out == NEW.replace("io/v1\n", "io/v1beta2\n")


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_the_examples_come_back_as_they_were(version: str, typed: Typed) -> None:
    folder = str(ROOT / "examples/gpu-cluster")
    start = documents(typed("convert", "--to", "v1", folder).out)
    there = process("convert", "--to", version, folder)
    back = process("convert", "--to", "v1", "-", stdin=there.out.encode())
    assert documents(back.out) == start


def test_pods_get_todays_spelling(typed: Typed, desk: Path) -> None:
    (desk / "f.yaml").write_text(POD)
    ended = typed("convert", "--to", "v1", "f.yaml")
    assert ended.out == POD_TODAY
    assert ended.err == (
        "dray: f.yaml:8:5: `source` is gone since Kubernetes 1.31; its fields stand beside `name`; repaired\n"
    )
    assert typed("convert", "--to", "v1beta1", "f.yaml").out == POD


def test_pods_inside_workloads_too(typed: Typed, desk: Path) -> None:
    pod = documents(POD)[0]
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {"replicas": 2, "template": {"spec": pod["spec"]}},
    }
    (desk / "f.yaml").write_text(yaml.safe_dump(workload))
    (answer,) = documents(typed("convert", "--to", "v1", "f.yaml").out)
    assert answer == {
        **workload,
        "spec": {"replicas": 2, "template": {"spec": documents(POD_TODAY)[0]["spec"]}},
    }


def test_other_objects_pass_and_documents_stay_apart(typed: Typed, desk: Path) -> None:
    other = "apiVersion: v1\nkind: ConfigMap\ndata:\n  when: '2026-01-31'\n  answer: 'yes'\n"
    (desk / "f.yaml").write_text(f"{OLD}---\n{other}---\n# nothing\n---\n{OLD}")
    ended = typed("convert", "--to", "v1", "f.yaml")
    assert ended.out == f"{NEW}---\n{other}---\n{NEW}"
    assert ended.err == "dray: f.yaml: comments are not kept\n"


def test_lists_stay_lists(typed: Typed, desk: Path) -> None:
    claim = documents(OLD)[0]
    bare = {key: value for key, value in claim.items() if key not in ("apiVersion", "kind")}
    (desk / "list.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [claim, claim]}))
    (answer,) = documents(typed("convert", "--to", "v1", "list.json").out)
    assert answer == {"apiVersion": "v1", "kind": "List", "items": [documents(NEW)[0]] * 2}
    typed_list = {"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaimList", "items": [bare]}
    (desk / "typed.json").write_text(json.dumps(typed_list))
    (answer,) = documents(typed("convert", "--to", "v1", "typed.json").out)
    assert answer["apiVersion"] == "resource.k8s.io/v1"
    assert answer["items"][0]["spec"] == documents(NEW)[0]["spec"]


def test_unknown_fields_are_kept_and_reported(typed: Typed, desk: Path) -> None:
    (desk / "f.yaml").write_text(OLD + "      tomorrow: 1\n")
    ended = typed("convert", "--to", "v1", "f.yaml")
    assert ended.code == 0
    assert documents(ended.out)[0]["spec"]["devices"]["requests"][0]["tomorrow"] == 1
    assert ended.err.startswith("dray: f.yaml:11:17: kept as it is: unknown field")


def test_numbers_keep_every_digit(typed: Typed, desk: Path) -> None:
    (desk / "f.yaml").write_text("apiVersion: v1\nkind: X\nx: 0.1000000000000000055511151231257827\nm: 1e3\n")
    assert "x: 0.1000000000000000055511151231257827\n" in typed("convert", "--to", "v1", "f.yaml").out


def test_json_on_request(typed: Typed, desk: Path) -> None:
    (desk / "f.yaml").write_text(OLD)
    assert json.loads(typed("convert", "--to", "v1", "-o", "json", "f.yaml").out) == documents(NEW)[0]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (
            OLD.replace("count: 2", "count: two"),
            "f2.yaml:10:14: spec.devices.requests[0].count: Invalid value",
        ),
        (OLD + "      count: 3\n", "f2.yaml:11:7: `count` stands here a second time"),
    ],
)
def test_a_fault_means_that_nothing_is_written(broken: str, words: str, typed: Typed, desk: Path) -> None:
    (desk / "f1.yaml").write_text(OLD)
    (desk / "f2.yaml").write_text(broken)
    for options in ([], ["--write"]):
        ended = typed("convert", "--to", "v1", *options, "f1.yaml", "f2.yaml")
        assert (ended.code, ended.out) == (1, "")
        assert words in ended.err
        assert ended.err.endswith("dray: nothing was written, because of the errors above\n")
    assert (desk / "f1.yaml").read_text() == OLD


def test_a_file_that_is_no_yaml_is_broken_input(typed: Typed, desk: Path) -> None:
    (desk / "f.yaml").write_text("a: [")
    ended = typed("convert", "--to", "v1", "f.yaml")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("dray: f.yaml:1:5: ")


class TestInPlace:
    """`--write` changes what needs a change, whole or not at all."""

    def test_only_what_needs_a_change_is_touched(self, typed: Typed, desk: Path) -> None:
        (desk / "old.yaml").write_text(f"# why\n{OLD}")
        (desk / "new.yaml").write_text(f"# keep me\n{NEW}")
        (desk / "old.json").write_text(json.dumps(documents(OLD)[0]))
        os.chmod(desk / "old.yaml", 0o640)
        ended = typed("convert", "--to", "v1", "--write", ".")
        assert ended.code == 0
        assert ended.out == ""
        assert ended.err == "dray: ./old.yaml: comments are not kept\ndray: converted 2 of 3 files\n"
        assert (desk / "old.yaml").read_text() == NEW
        assert (desk / "new.yaml").read_text() == f"# keep me\n{NEW}"
        assert json.loads((desk / "old.json").read_text()) == documents(NEW)[0]
        assert stat.S_IMODE((desk / "old.yaml").stat().st_mode) == 0o640
        assert sorted(path.name for path in desk.iterdir()) == ["new.yaml", "old.json", "old.yaml"]

    def test_a_link_stays_a_link(self, typed: Typed, desk: Path) -> None:
        (desk / "real.yaml").write_text(OLD)
        (desk / "link.yaml").symlink_to("real.yaml")
        assert typed("convert", "--to", "v1", "--write", "link.yaml").code == 0
        assert (desk / "link.yaml").is_symlink()
        assert (desk / "real.yaml").read_text() == NEW

    def test_a_second_time_changes_nothing(self, typed: Typed, desk: Path) -> None:
        (desk / "f.yaml").write_text(OLD)
        typed("convert", "--to", "v1", "--write", "f.yaml")
        assert typed("convert", "--to", "v1", "--write", "f.yaml").err == "dray: converted 0 of 1 file\n"

    def test_standard_input_cannot_be_written_to(self, typed: Typed) -> None:
        ended = typed("convert", "--to", "v1", "--write", "-")
        assert (ended.code, ended.err) == (
            2,
            "dray: `--write` cannot write back to standard input; name files\n",
        )

    def test_a_failed_write_leaves_the_file_alone(
        self, typed: Typed, desk: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (desk / "f.yaml").write_text(OLD)

        def full(_file: int) -> None:
            raise OSError(28, "no space")

        monkeypatch.setattr(os, "fsync", full)
        ended = typed("convert", "--to", "v1", "--write", "f.yaml")
        assert (ended.code, ended.err) == (2, "dray: cannot write `f.yaml`: no space left on device\n")
        assert (desk / "f.yaml").read_text() == OLD
        assert [path.name for path in desk.iterdir()] == ["f.yaml"]
