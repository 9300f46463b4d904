"""The log that a shim writes: entries, parts of long lines, and rotation."""

from __future__ import annotations

import re
from pathlib import Path

from dray.node.containers.runtime.shim.log import MAX_LINE_BYTES, ContainerLogWriter
from tests.unit.node.containers.runtime.machine import Machine, run, run_to_exit

ENTRY = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z) (stdout|stderr) ([FP]) (.*)", re.DOTALL)


def entries(path: Path) -> list[tuple[bytes, bytes, bytes]]:
    """Stream, tag and text of each entry; every one must have the form."""
    lines = path.read_bytes().split(b"\n")
    assert lines.pop() == b""
    found = [ENTRY.fullmatch(line) for line in lines]
    assert all(found)
    times = [each[1] for each in found if each]
    assert times == sorted(times)
    return [(each[2], each[3], each[4]) for each in found if each]


def test_lines_are_entries_whatever_pieces_they_come_in(tmp_path: Path):
    log = ContainerLogWriter(str(tmp_path / "log"), 1 << 20, 2)
    for piece in (b"one\ntw", b"o\n", b"\n", b"thr", b"ee"):
        log.write_chunk(b"stdout", piece)
    log.write_chunk(b"stderr", b"odd\n")
    log.close()
    assert entries(tmp_path / "log") == [
        (b"stdout", b"F", b"one"),
        (b"stdout", b"F", b"two"),
        (b"stdout", b"F", b""),
        (b"stderr", b"F", b"odd"),
        (b"stdout", b"P", b"three"),
    ]


def test_a_long_line_is_written_in_parts(tmp_path: Path):
    log = ContainerLogWriter(str(tmp_path / "log"), 1 << 30, 2)
    long = b"x" * (3 * MAX_LINE_BYTES + 5)
    log.write_chunk(b"stdout", long[:70000])
    log.write_chunk(b"stdout", long[70000:] + b"\nshort\n")
    log.close()
    parts = entries(tmp_path / "log")
    assert [tag for _, tag, _ in parts] == [b"P", b"P", b"P", b"F", b"F"]
    assert b"".join(text for _, _, text in parts[:-1]) == long
    assert max(len(text) for _, _, text in parts) == MAX_LINE_BYTES


def test_a_long_log_is_rotated_and_the_oldest_file_deleted(tmp_path: Path):
    log = ContainerLogWriter(str(tmp_path / "log"), 1000, 2)
    for number in range(100):
        log.write_chunk(b"stdout", b"%060d\n" % number)
    log.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["log", "log.1", "log.2"]
    texts = [int(text) for name in ("log.2", "log.1", "log") for _, _, text in entries(tmp_path / name)]
    assert texts == list(range(texts[0], 100))
    assert all(1000 <= (tmp_path / name).stat().st_size < 1200 for name in names[1:])


def test_a_full_disk_does_not_stop_the_container():
    log = ContainerLogWriter("/dev/full", 1 << 20, 2)
    log.write_chunk(b"stdout", b"lost\n")
    log.close()


def test_junk_and_endless_lines_of_a_real_process(machine: Machine):
    script = (
        "head -c 100000 /dev/urandom > $0/junk; cat $0/junk; "
        "head -c 300000 /dev/zero | tr '\\0' y >&2; printf '\\n' >&2"
    )
    assert run(run_to_exit(machine.runtime(), machine.shell(script))).code == 0
    found = entries(machine.log())
    out = b"".join(text + b"\n" * (tag == b"F") for stream, tag, text in found if stream == b"stdout")
    err = b"".join(text + b"\n" * (tag == b"F") for stream, tag, text in found if stream == b"stderr")
    assert out == (machine.root / "junk").read_bytes()
    assert err == b"y" * 300000 + b"\n"


def test_a_real_process_that_talks_without_end_leaves_three_files(machine: Machine):
    """Thirty-five MiB of talk in files of ten: what is kept is the end of it, without a gap."""
    line = "0123456789" * 10
    assert run(run_to_exit(machine.runtime(), machine.shell(f"seq -f '{line} %.0f' 1 350000"))).code == 0
    folder = machine.log().parent
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert set(sizes) == {"0.log", "0.log.1", "0.log.2"}
    assert max(sizes.values()) < 12 * 1024 * 1024
    rows = [
        int(text.rpartition(b" ")[2])
        for name in ("0.log.2", "0.log.1", "0.log")
        for _, _, text in entries(folder / name)
    ]
    assert rows == list(range(rows[0], 350001))
    assert len(rows) > 100000
