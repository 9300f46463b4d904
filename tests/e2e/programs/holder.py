"""A container that uses its device until it is killed, and tells when somebody else uses it, too.

    python holder.py FOLDER NAME

The lock on a file of the device's name is the device: the kernel lets go of it when the container is gone,
however it went. Every begin is a line in `journal`; a device that is in use is a line in `violations`.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path


def main(folder: Path, name: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    device = os.environ["PLAIN_DEVICE"]
    with (folder / device).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _append(folder / "violations", f"{name} {device}")
        _append(folder / "journal", f"{name} {device}")
        print(f"got={device}", flush=True)
        while True:
            signal.pause()


def _append(file: Path, line: str) -> None:
    with file.open("a") as lines:
        lines.write(line + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
