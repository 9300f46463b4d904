"""Every command, output and program in the pages is real, and every link leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.outside import ROOT
from tests.unit.docs.pages import Block, blocks, play, prose, session
from tests.unit.docs.shell import matches

LINK = re.compile(r"\[[^]]+\]\((?P<target>[^)#\s]+)(?:#[^)]*)?\)")


def _pages() -> list[Path]:
    generated = ROOT / "docs" / "reference"
    written = [
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
    ]
    return [path for path in written if generated not in path.parents]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture
def desk(tmp_path):
    """A folder in which the examples lie as in the repository, and in which a page may write files."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


RUNNABLE = [
    path for path in _pages() if any(b.language in ("console", "python") for b in blocks(path.read_text()))
]


@pytest.mark.parametrize("path", RUNNABLE, ids=_name)
def test_a_page_shows_what_happens(path, desk):
    wrong = play(path.read_text(), desk)
    assert not wrong, f"{_name(path)}\n" + "\n".join(map(str, wrong))


@pytest.mark.parametrize("path", _pages(), ids=_name)
def test_links_lead_somewhere(path):
    targets = [found["target"] for found in LINK.finditer(prose(path.read_text()))]
    lost = [t for t in targets if "://" not in t and not (path.parent / t).exists()]
    assert not lost


def test_every_page_is_reached_from_the_readme():
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        links = (found["target"] for found in LINK.finditer(prose(page.read_text())))
        places = [(page.parent / link).resolve() for link in links if "://" not in link]
        waiting += [place / "README.md" if place.is_dir() else place for place in places]
    assert {_name(p) for p in _pages()} - {_name(p) for p in reached} == set()


def test_the_reference_is_what_the_tables_say():
    """In a process of its own, as `make docs` makes it."""
    command = [sys.executable, "-m", "dray.cli", "reference", "--check", str(ROOT / "docs" / "reference")]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, f"run `make docs`\n{checked.stdout}{checked.stderr}"


class TestTheRunner:
    """A runner that finds nothing would keep every page green."""

    def test_output_that_differs_is_found(self, tmp_path):
        (wrong,) = play("```console\n$ echo one\ntwo\n```\n", tmp_path)
        assert (wrong.line, wrong.ran, wrong.got) == (2, "echo one", "one\n")

    def test_output_that_is_not_shown_is_found(self, tmp_path):
        assert play("```console\n$ echo one\n```\n", tmp_path)

    def test_errors_and_statuses_are_part_of_a_session(self, tmp_path):
        page = "```console\n$ ls nowhere 2>/dev/null || (echo no >&2; exit 3)\nno\n$ echo $?\n3\n```\n"
        assert not play(page, tmp_path)

    def test_printed_text_is_compared(self, tmp_path):
        assert not play("```python\nprint(1)\n```\n\n```text\n1\n```\n", tmp_path)
        assert play("```python\nprint(1)\n```\n\n```text\n2\n```\n", tmp_path)
        assert play("```python\nprint(1)\n```\n", tmp_path)

    def test_blocks_of_a_page_share_names_and_files(self, tmp_path):
        page = (
            "Save this as `a.txt`:\n\n```yaml\nhello\n```\n"
            "```python\nfrom pathlib import Path\nx = Path('a.txt').read_text()\n```\n"
            "```python\nprint(x.strip())\n```\n```text\nhello\n```\n"
            "```console\n$ cat a.txt\nhello\n```\n"
        )
        assert not play(page, tmp_path)

    @pytest.mark.parametrize(
        ("expected", "got", "same"),
        [
            ("a\n...\nz", "a\nb\nc\nz\n", True),
            ("a\n...\nz", "a\nz\n", True),
            ("a\n...", "a\n", True),
            ("took ... ms", "took 12 ms\n", True),
            ("took ... ms", "took 12 s\n", False),
            ("a.c", "abc\n", False),
            ("", "", True),
            ("", "a\n", False),
            ("a\n\nb", "a\n\nb\n", True),
            ("a\nb", "a\n\nb\n", False),
        ],
    )
    def test_three_dots_stand_for_anything(self, expected, got, same):
        assert matches(expected, got) is same

    def test_prose_is_what_is_outside_the_blocks(self):
        assert prose("a\n```text\n[b](c)\n```\nd\n```text\n```\ne").split() == ["a", "d", "e"]

    def test_a_block_must_be_closed_and_a_session_start_with_a_command(self):
        with pytest.raises(ValueError, match="never closed"):
            blocks("```console\n$ true\n")
        with pytest.raises(ValueError, match="starts with"):
            session(Block("console", "output", 1, ""))
