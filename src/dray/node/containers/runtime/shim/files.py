"""The files that agents and shims share: config, state, exit and notes.

Theory of operation: the agent makes a directory per container and writes the config, marshalled, because the
shim runs the same interpreter. Later agents read lines of text, each a key and its values, written
atomically: `state` has the processes of shim and container and the boot of the machine; `exit` has the exit
code, and exists only when nothing of the container runs any more.

The names of the files and keys are older than those in the code and must stay: agents and shims of different
versions meet on one machine.
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
"""Errors that did not stop the container, and the traceback of a shim that crashed."""


def write_text(name: str, text: str) -> None:
    """Write a file into the current directory atomically."""
    with open(f".{name}", "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    os.replace(f".{name}", name)


def write_state(main: int, started: float) -> None:
    """Write the processes of shim (this one) and container; `main` is 0 while the container has none."""
    lines = [f"boot {read_boot_id()}", f"started {started}"]
    for name, pid in (("keeper", os.getpid()), ("main", main)):
        found = find_process(pid) if pid else None
        lines.append(f"{name} {pid} {found[2] if found else 0}")
    write_text(STATE, "\n".join(lines) + "\n")


def write_exit(ending: tuple[int, int, str, str], started: float, finished: float) -> None:
    """Write the exit code, signal, reason and message; the message comes last and may have lines."""
    code, number, reason, message = ending
    head = f"code {code}\nsignal {number}\nreason {reason}\nstarted {started}\nfinished {finished}\n"
    write_text(EXIT, f"{head}\n{message}")


def read_fields(path: str) -> tuple[dict[str, list[str]], str]:
    """Read the values of a file by key, and the message; empty when there is no file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            head, _, message = file.read().partition("\n\n")
    except FileNotFoundError:
        return {}, ""
    lines = [line.split() for line in head.splitlines() if line.strip()]
    return {words[0]: words[1:] for words in lines}, message


def read_boot_id() -> str:
    """Read the id of this boot of the machine; empty where the kernel has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
