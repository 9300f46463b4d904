"""The files by which agents and keepers know each other: orders, state, exit.

Theory of operation: the agent makes a directory per container and writes the orders, marshalled, because the
keeper runs the same interpreter. What a later agent reads is lines of text, each a word and its values, put
in place in one step: `state` says which processes keeper and container are, and of which boot of the machine;
`exit` says how it ended, and is there only when nothing of the container runs any more.
"""

from __future__ import annotations

import os

from dray.node.containers.runtime.shim.processes import find_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

CONFIG: Final = "orders"
STATE: Final = "state"
EXIT: Final = "exit"
NOTES: Final = "keeper.log"
"""What went wrong around the container and did not stop it, and what a keeper could not survive."""


def write_text(name: str, text: str) -> None:
    """Put a file into the current directory in one step."""
    with open(f".{name}", "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    os.replace(f".{name}", name)


def write_state(main: int, started: float) -> None:
    """Say which processes keeper (we) and container are; the container has none yet when `main` is 0."""
    lines = [f"boot {read_boot_id()}", f"started {started}"]
    for name, pid in (("keeper", os.getpid()), ("main", main)):
        found = find_process(pid) if pid else None
        lines.append(f"{name} {pid} {found[2] if found else 0}")
    write_text(STATE, "\n".join(lines) + "\n")


def write_exit(ending: tuple[int, int, str, str], started: float, finished: float) -> None:
    """Say how it ended: exit code, signal, reason and message; the message comes last and may have lines."""
    code, number, reason, message = ending
    head = f"code {code}\nsignal {number}\nreason {reason}\nstarted {started}\nfinished {finished}\n"
    write_text(EXIT, f"{head}\n{message}")


def read_fields(path: str) -> tuple[dict[str, list[str]], str]:
    """The values of a file by the word before them, and the message; nothing when there is no file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            head, _, message = file.read().partition("\n\n")
    except FileNotFoundError:
        return {}, ""
    lines = [line.split() for line in head.splitlines() if line.strip()]
    return {words[0]: words[1:] for words in lines}, message


def read_boot_id() -> str:
    """Which boot of the machine this is; empty where nobody tells."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
