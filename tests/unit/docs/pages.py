"""Pages of the documentation as things that can be run.

Theory of operation: a page is a list of fenced blocks. A `console` block is a session in a shell: lines with
`$ ` are typed, the lines below are what must appear, standard output and standard error as a terminal mixes
them. A `python` block is executed; when a `text` block follows, it is what must have been printed. A block
after a line that ends in ``as `NAME`:`` is a file to save. All blocks of a page share one directory, one
environment of exported variables and one Python namespace.

In expected output `...` stands for anything: on a line of its own for any lines, inside a line for any
characters.

Pages are written for people: they show `dray up &`, `kill %1` and `kubectl get`. `tests.unit.docs.shell` adds
what only a test needs: free ports, log files, and waiting.
"""

from __future__ import annotations

import contextlib
import io
import re
import traceback
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.unit.docs.shell import Mismatch, PageShell, matches

FENCE = re.compile(r"^(?P<indent> *)```(?P<info>.*)$")
SAVED_AS = re.compile(r"\bas `(?P<name>[\w./-]+)`:$")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, the line it starts on, and the line of prose before it."""

    language: str
    text: str
    line: int
    before: str


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page in order."""
    found: list[Block] = []
    lines = page.splitlines()
    at, before = 0, ""
    while at < len(lines):
        opening = FENCE.match(lines[at])
        if opening is None:
            before = lines[at].strip() or before
            at += 1
            continue
        indent = opening["indent"]
        end = next((n for n in range(at + 1, len(lines)) if lines[n] == f"{indent}```"), None)
        if end is None:
            raise ValueError(f"line {at + 1}: the block is never closed")
        text = "\n".join(line.removeprefix(indent) for line in lines[at + 1 : end])
        found.append(Block(opening["info"].strip(), text, at + 1, before))
        at, before = end + 1, ""
    return found


def prose(page: str) -> str:
    """A page without its blocks."""
    lines = page.splitlines()
    for block in blocks(page):
        length = len(block.text.splitlines()) + 2 if block.text else 2
        lines[block.line - 1 : block.line - 1 + length] = [""] * length
    return "\n".join(lines)


def session(block: Block) -> list[tuple[int, str, str]]:
    """The commands of a console block: line number, what is typed, what must appear."""
    commands: list[tuple[int, str, list[str]]] = []
    for number, line in enumerate(block.text.splitlines(), start=block.line + 1):
        if line.startswith("$ "):
            commands.append((number, line[2:], []))
        elif commands:
            commands[-1][2].append(line)
        else:
            raise ValueError(f"line {number}: a console block starts with `$ ` and a command")
    return [(number, typed, "\n".join(shown)) for number, typed, shown in commands]


def play(page: str, folder: Path, sessions: str = "console") -> list[Mismatch]:
    """Do everything a page shows, in a folder; return what comes out differently.

    `sessions` is the language of blocks that are typed; `console kubectl` needs more than every machine has.
    """
    wrong: list[Mismatch] = []
    names: dict[str, Any] = {"__name__": "page"}
    shell = PageShell(folder, repeat_reads=sessions != "console")
    all_blocks = blocks(page)
    try:
        for block, after in zip_longest(all_blocks, all_blocks[1:]):
            saved = SAVED_AS.search(block.before)
            if saved:
                (folder / saved["name"]).write_text(block.text + "\n")
            elif block.language == sessions:
                wrong += filter(None, (shell.run(*command) for command in session(block)))
            elif block.language == "python":
                expected = after.text if after is not None and after.language == "text" else ""
                got = _play_python(block, names, folder)
                if not matches(expected, got):
                    wrong.append(Mismatch(block.line, "python", expected, got))
    finally:
        shell.jobs.stop_all()
    return wrong


def _play_python(block: Block, names: dict[str, Any], folder: Path) -> str:
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        try:
            exec(compile(block.text, f"page line {block.line}", "exec"), names)
        except Exception:  # a page may show a program that fails, but then it shows how
            print(traceback.format_exc())
    return printed.getvalue()
