"""Pages of the documentation as things that can be run.

Theory of operation: a page is a list of fenced blocks. A `console` block is a session in a shell: lines with
`$ ` are typed, the lines below are what must appear, standard output and standard error as a terminal mixes
them. A `python` block is executed; when a `text` block follows, it is what must have been printed. A block
after a line that ends in ``as `NAME`:`` is a file to save. All blocks of a page share one directory and one
Python namespace, so that a page reads as one story.

In expected output `...` stands for anything: on a line of its own for any lines, inside a line for any
characters.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import traceback
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

FENCE = re.compile(r"^(?P<indent> *)```(?P<info>.*)$")
SAVED_AS = re.compile(r"\bas `(?P<name>[\w./-]+)`:$")
MARK = "\x1e"
PATIENCE = 150


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, the line it starts on, and the line of prose before it."""

    language: str
    text: str
    line: int
    before: str


@dataclass(frozen=True)
class Mismatch:
    """A command or a program that does not do what the page shows."""

    line: int
    ran: str
    expected: str
    got: str

    def __str__(self) -> str:
        shown = f"--- the page shows\n{self.expected}\n--- what happens\n{self.got}"
        return f"line {self.line}: {self.ran}\n{shown}\n"


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


def matches(expected: str, got: str) -> bool:
    """Whether an output is what the page shows; trailing blanks do not count."""
    pattern = ""
    for line in expected.strip("\n").splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*"
        else:
            pattern += ".*".join(re.escape(part) for part in line.rstrip().split("...")) + r" *\n"
    shown = got.strip("\n") + "\n" if got.strip() else ""
    return re.fullmatch(pattern, shown) is not None


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
    """Do everything a page shows, in a folder; what comes out differently.

    `sessions` is the language of blocks that are typed; `console kubectl` needs more than every machine has.
    """
    wrong: list[Mismatch] = []
    names: dict[str, Any] = {"__name__": "page"}
    all_blocks = blocks(page)
    for block, after in zip_longest(all_blocks, all_blocks[1:]):
        saved = SAVED_AS.search(block.before)
        if saved:
            (folder / saved["name"]).write_text(block.text + "\n")
        elif block.language == sessions:
            wrong += _play_session(block, folder)
        elif block.language == "python":
            expected = after.text if after is not None and after.language == "text" else ""
            got = _play_python(block, names, folder)
            if not matches(expected, got):
                wrong.append(Mismatch(block.line, "python", expected, got))
    return wrong


def _play_session(block: Block, folder: Path) -> list[Mismatch]:
    commands = session(block)
    # The status of a command is kept for a following `echo $?`; the mark tells where its output ends.
    script = "\n".join(f"{typed}\nstatus=$?; printf '{MARK}'; (exit $status)" for _, typed, _ in commands)
    surroundings = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "COLUMNS": "110",
        "TERM": "dumb",
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        cwd=folder,
        env=surroundings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE,
        check=False,
    )
    outputs = done.stdout.decode().split(MARK)
    return [
        Mismatch(number, typed, expected, got)
        for (number, typed, expected), got in zip(commands, outputs, strict=False)
        if not matches(expected, got)
    ]


def _play_python(block: Block, names: dict[str, Any], folder: Path) -> str:
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        try:
            exec(compile(block.text, f"page line {block.line}", "exec"), names)
        except Exception:  # a page may show a program that fails, but then it shows how
            print(traceback.format_exc())
    return printed.getvalue()
