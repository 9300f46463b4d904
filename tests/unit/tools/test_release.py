"""The checklist of a release stops at what is not met."""

from __future__ import annotations

import pytest

from tools import release
from tools.release import Release, ReleaseError


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "run", lambda *command, **choices: "")
    return tmp_path


def make_release(root, version="1.2.3", *, rehearsal=False):
    return Release(version, rehearsal, root)


def test_a_development_version_is_no_release(root):
    with pytest.raises(ReleaseError, match=r"`1\.2\.3\.dev0` .* is no version of a release"):
        release.check_version(make_release(root, "1.2.3.dev0"))
    assert release.check_version(make_release(root, "1.2.3.dev0", rehearsal=True)) == "1.2.3.dev0"
    assert release.check_version(make_release(root)) == "1.2.3"


def test_a_version_is_released_once(root, monkeypatch):
    monkeypatch.setattr(release, "run", lambda *command, **choices: "v1.2.3")
    with pytest.raises(ReleaseError, match=r"the tag v1\.2\.3 exists"):
        release.check_version(make_release(root))


@pytest.mark.parametrize(
    ("changelog", "fits"),
    [
        ("# Changelog\n\n## 1.2.3, 2026-11-18\n\n- one\n- two\n\n## 1.2.2\n\n- old\n", True),
        ("# Changelog\n\n## 1.2.3\n\n## 1.2.2\n\n- old\n", False),
        ("# Changelog\n\n## Unreleased\n\n- one\n", False),
        ("# Changelog\n\n## 11.2.3\n\n- one\n", False),
    ],
)
def test_the_changelog_needs_entries_for_the_version(root, changelog, fits):
    (root / "CHANGELOG.md").write_text(changelog)
    if fits:
        assert release.check_changelog(make_release(root)) == "`## 1.2.3` has 2 entries"
        return
    with pytest.raises(ReleaseError, match=r"no section `## 1\.2\.3` with entries"):
        release.check_changelog(make_release(root))


def test_a_changed_tree_is_not_released(root, monkeypatch):
    monkeypatch.setattr(release, "run", lambda *command, **choices: " M README.md")
    with pytest.raises(ReleaseError, match="commit or remove them"):
        release.check_tree(make_release(root))


def test_a_command_that_fails_is_shown_with_its_output(tmp_path):
    with pytest.raises(ReleaseError, match=r"ended with 3, expected 0\nno such thing"):
        release.run("sh", "-c", "echo no such thing; exit 3", cwd=tmp_path)
    assert release.run("sh", "-c", "echo so; exit 3", cwd=tmp_path, expected=3) == "so"


def test_the_first_point_that_is_not_met_ends_the_walk(monkeypatch, capsys):
    walked = []

    def pass_by(_):
        walked.append("one")
        return "fine"

    def refuse(_):
        raise ReleaseError("not now")

    steps = {"one": pass_by, "two": refuse, "three": pass_by}
    monkeypatch.setattr(release, "STEPS", steps)
    assert release.main(["--rehearse"]) == 1
    assert walked == ["one"]
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("[ok] one: fine\n", "[no] two: not now\n")
