"""How every run ends: exit codes, one line on standard error, and no traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dray import __version__
from dray.cli import app
from dray.errors import UnanswerableClaimError
from tests.unit.cli.conftest import Typed, process


def test_the_version_is_printed_without_loading_anything_heavy() -> None:
    program = (
        "import sys\n"
        "from dray.cli.app import run\n"
        "code = run(['--version'])\n"
        "heavy = {name.partition('.')[0] for name in sys.modules} & {'yaml', 'rich', 'msgspec'}\n"
        "ours = ('dray.api', 'dray.lint', 'dray.manifests')\n"
        "heavy |= {name for name in sys.modules if name.startswith(ours)}\n"
        "print(code, sorted(heavy))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"dray {__version__}\n0 []\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lnt"], "dray: no such command `lnt`; did you mean `lint`?\n"),
        (["xyz"], "dray: no such command `xyz`\n"),
        (["lint", "--complet"], "dray: no such option `--complet`; did you mean `--complete`?\n"),
        (["lint", "--xyzzy"], "dray: no such option `--xyzzy`\n"),
        (["lint"], "dray: nothing to read; name files, folders or `-` for standard input\n"),
        (["lint", "gone.yaml"], "dray: cannot read `gone.yaml`: no such file or folder\n"),
        (["lint", "-o", "xml", "x"], "is not one of 'text', 'json'; see `dray lint --help`\n"),
        (["lint", "--severity"], "dray: option '--severity' requires an argument"),
        (["gates", "--feature-gates", "DRAPriorizedList=false"], "did you mean `DRAPrioritizedList`?\n"),
        (["gates", "--feature-gates", "DRAAdminAccess"], "dray: feature gates are written `Name=true"),
        (
            ["gates", "--feature-gates", "DynamicResourceAllocation=false"],
            "requires `DynamicResourceAllocation`",
        ),
        (["convert", "x"], "dray: missing option '--to'"),
        (["convert", "--to", "v1beta9", "x"], "did you mean `v1beta"),
        (["convert", "--to", "apps/v1", "x"], "dray: cannot convert to `apps/v1`"),
        (["gates", "surplus"], "surplus"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    arguments: list[str], words: str, typed: Typed
) -> None:
    ended = typed(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
    assert ended.err.startswith("dray: ")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["--help"], ["-h"], ["lint", "--help"], ["convert", "-h"], ["gates", "-h"]]
)
def test_help_is_an_answer(arguments: list[str], typed: Typed) -> None:
    ended = typed(*arguments)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("Usage: dray")


def test_no_command_shows_the_commands(typed: Typed) -> None:
    ended = typed()
    assert ended.code == 2
    text = " ".join(ended.out.split())  # long descriptions are wrapped
    for name, (_, about) in app.COMMANDS.items():
        assert f" {name} {about}" in text


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "dray: interrupted\n"),
        (UnanswerableClaimError("claim `a` is broken"), 2, "dray: claim `a` is broken\n"),
        (
            ZeroDivisionError("two\nlines"),
            3,
            "dray: a fault of dray itself: ZeroDivisionError: two lines (DRAY_DEBUG=1",
        ),
        (RecursionError(), 3, "dray: a fault of dray itself: RecursionError (DRAY_DEBUG=1"),
    ],
)
def test_whatever_happens_is_one_line(
    raised: BaseException, code: int, words: str, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise raised

    monkeypatch.setattr(app.dray, "invoke", fail)
    ended = typed("gates")
    assert ended.code == code
    assert ended.err.strip("\n").startswith(words.strip("\n"))


def test_a_developer_can_ask_for_the_traceback(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(app.dray, "invoke", fail)
    monkeypatch.setenv("DRAY_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        typed("gates")


def test_a_closed_output_is_no_error(tmp_path: Path) -> None:
    broken = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: A}\n---\n" * 2000
    (tmp_path / "many.yaml").write_text(broken)
    running = subprocess.Popen(
        [sys.executable, "-m", "dray.cli", "lint", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.readline()
    running.stdout.close()
    talk = running.stderr.read()
    running.stderr.close()
    assert (running.wait(60), talk) == (141, b"")


def test_an_interrupted_process_prints_it(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        # A shell that starts a job in the background has it ignore the signal, and its children inherit that.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from dray.cli import app\n"
        "from dray.cli.input import manifest_files\n"
        "manifest_files.find_input_files = lambda _: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.exit(app.run(['lint', 'x']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr.strip()) == (130, "dray: interrupted")
    assert signal.getsignal(signal.SIGINT) is not None


def test_the_module_is_the_command() -> None:
    ended = process("--version")
    assert (ended.code, ended.out) == (0, f"dray {__version__}\n")
