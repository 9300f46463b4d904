"""Carries out the steps of deploy/Containerfile in clean virtual environments, and runs `dray up` there.

Theory of operation: each stage gets a directory that stands for its root file system, with a virtual
environment in it whose `python` is the one of the stage. Absolute paths that the Containerfile names itself
are moved below that directory; everything else of a RUN line is carried out as it is written. What the image
would start then runs with its user, its working directory and its environment. Nothing but a container engine
could show more, except whether the base image has a `sh`.

`python -m tests.deploy.replay` needs a package index for what `requirements/` pins.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.deploy.containerfile import Stage, read_stages
from tests.outside import ROOT

KEPT_VARIABLES = ("PIP_", "SSL_", "HTTP_", "HTTPS_", "NO_PROXY", "LANG")
READY_SECONDS = 120.0


class ReplayError(Exception):
    """A step of the Containerfile, or the result of all of them, does not work."""


@dataclass
class ReplayedStage:
    """A stage that has been carried out, below `root`."""

    stage: Stage
    root: Path
    own_paths: Sequence[str]
    """Paths of the image that are moved below `root`."""
    workdir: str = "/"
    environment: dict[str, str] = field(default_factory=dict)

    def move_path(self, path: str) -> Path:
        return self.root / os.path.normpath(os.path.join(self.workdir, path)).lstrip("/")

    def move_paths(self, line: str) -> str:
        named = "|".join(re.escape(path) for path in sorted(self.own_paths, key=len, reverse=True))
        return re.sub(rf"(?<![\w./-])(?:{named})(?![\w-])", lambda found: f"{self.root}{found[0]}", line)

    def build_environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name.startswith(KEPT_VARIABLES)}
        moved = {name: self.move_paths(value) for name, value in self.environment.items()}
        return {
            **kept,
            "PATH": f"{self.root / 'venv' / 'bin'}:{os.defpath}",
            "HOME": str(self.root / "home"),
            **moved,
        }


def find_interpreter(base: str, user: int | None) -> str:
    """The Python that is nearest to the one of the base image, and that `user` can run."""
    tag = re.search(r":(\d+\.\d+)", base)
    wanted = [f"python{tag[1]}"] if tag else []
    for name in (*wanted, sys.executable, "/usr/bin/python3"):
        program = shutil.which(name)
        script = "import sys, ensurepip; sys.exit(sys.version_info < (3, 11))"
        if program and _succeeds([os.path.realpath(program), "-c", script], user):
            return os.path.realpath(program)
    if user is not None:
        return find_interpreter(base, None)
    raise ReplayError("no Python 3.11 or newer with ensurepip")


def _succeeds(arguments: list[str], user: int | None) -> bool:
    who = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    try:
        done = subprocess.run(arguments, capture_output=True, check=False, cwd="/", **who)  # type: ignore[call-overload]
    except OSError:
        return False
    return bool(done.returncode == 0)


def replay_stages(folder: Path, interpreter: str) -> ReplayedStage:
    """Carry out every stage; returns the last, which is the image."""
    stages = read_stages()
    own = sorted({path for stage in stages for path in _list_own_paths(stage)})
    done: dict[str, ReplayedStage] = {}
    for stage in stages:
        print(f"== FROM {stage.base} AS {stage.name}", flush=True)
        root = folder / stage.name
        (root / "home").mkdir(parents=True)
        subprocess.run([interpreter, "-m", "venv", str(root / "venv")], check=True)
        done[stage.name] = replayed = ReplayedStage(stage, root, own)
        for step in stage.steps:
            print(f"{step.keyword} {step.text}", flush=True)
            _carry_out(replayed, step.keyword, step.text, done)
    return done[stages[-1].name]


def _list_own_paths(stage: Stage) -> list[str]:
    """Directories that the Containerfile makes."""
    made = [step.parse_words()[-1] for step in stage.steps if step.keyword in ("WORKDIR", "COPY")]
    return [path.rstrip("/") for path in made if path.startswith("/")]


def _carry_out(replayed: ReplayedStage, keyword: str, text: str, done: dict[str, ReplayedStage]) -> None:
    if keyword == "WORKDIR":
        replayed.workdir = text
        replayed.move_path(".").mkdir(parents=True, exist_ok=True)
    elif keyword == "ENV":
        replayed.environment |= dict(pair.split("=", 1) for pair in text.split())
    elif keyword == "COPY":
        _copy(replayed, text.split(), done)
    elif keyword == "RUN":
        line = replayed.move_paths(text)
        if os.geteuid() != 0:
            line = re.sub(r" -o \d+ -g \d+", "", line)
        where = replayed.move_path(".")
        ended = subprocess.run(
            ["/bin/sh", "-c", line], cwd=where, env=replayed.build_environment(), check=False
        )
        if ended.returncode:
            raise ReplayError(f"RUN {text}: exit code {ended.returncode}")


def _copy(replayed: ReplayedStage, words: list[str], done: dict[str, ReplayedStage]) -> None:
    origin, relative_to = ROOT, "."
    if words[0].startswith("--from="):
        origin, relative_to = done[words.pop(0).removeprefix("--from=")].root, "/"
    *sources, target = words
    into = replayed.move_path(target)
    for source in sources:
        found = origin / os.path.relpath(source, relative_to)
        if found.is_dir():
            shutil.copytree(
                found, into, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            place = into / found.name if target.endswith("/") or into.is_dir() else into
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(found, place)


def run_image(image: ReplayedStage, user: int | None) -> None:
    """Run what the image starts: its version, and `dray up` until its nodes have devices."""
    (entrypoint,) = image.stage.find("ENTRYPOINT")
    (program,) = entrypoint.parse_words()
    command = str(image.root / "venv" / "bin" / program)
    who = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    environment = image.build_environment()
    where = image.move_path(".")
    before = _list_files(image.root, where)

    def run(*arguments: str, **more: str) -> str:
        ended = subprocess.run(  # type: ignore[call-overload]
            [command, *arguments],
            cwd=where,
            env={**environment, **more},
            capture_output=True,
            text=True,
            **who,
        )
        if ended.returncode:
            raise ReplayError(f"dray {' '.join(arguments)}: {ended.stdout}{ended.stderr}")
        return str(ended.stdout)

    print(run("--version").strip(), flush=True)
    started = subprocess.Popen(  # type: ignore[call-overload]
        [command, "up", "--nodes", "2", "--port", "0"],
        cwd=where,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        **who,
    )
    try:
        kubeconfig = where / "dray-data" / "admin.kubeconfig"
        _wait_for_devices(started, kubeconfig, lambda: run("status", KUBECONFIG=str(kubeconfig)))
    finally:
        started.send_signal(signal.SIGINT)
        _, errors = started.communicate(timeout=60)
    if started.returncode or "stopped" not in errors:
        raise ReplayError(f"`dray up` ended with exit code {started.returncode}:\n{errors}")
    if written := _list_files(image.root, where) - before:
        raise ReplayError(f"`dray up` wrote outside of its volume: {sorted(written)[:5]}")


def _wait_for_devices(started: subprocess.Popen[str], kubeconfig: Path, read_status) -> None:
    end, last = time.monotonic() + READY_SECONDS, ""
    while time.monotonic() < end:
        if started.poll() is not None:
            raise ReplayError(f"`dray up` ended:\n{started.communicate()[1]}")
        if kubeconfig.exists():
            last = read_status()
            if "gpu.example.com" in last and "nic.example.com" in last:
                print(last, flush=True)
                return
        time.sleep(0.2)
    raise ReplayError(f"no devices after {READY_SECONDS:.0f} s:\n{last}")


def _list_files(root: Path, volume: Path) -> set[str]:
    """Files of the image, with the time of their last change, outside of the volume."""
    return {
        f"{path} {path.lstat().st_mtime_ns}"
        for path in root.rglob("*")
        if volume not in (path, *path.parents) and not path.is_dir()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.deploy.replay", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--keep", action="store_true", help="do not remove the directory at the end")
    chosen = parser.parse_args(arguments)
    image = read_stages()[-1]
    (who,) = image.find("USER")
    user = int(who.text.split(":")[0]) if os.geteuid() == 0 else None
    interpreter = find_interpreter(image.base, user)
    if user is not None and not _succeeds([interpreter, "-c", ""], user):
        print(f"{interpreter} can be run only by this user; user {user} is left out", flush=True)
        user = None
    folder = Path(tempfile.mkdtemp(prefix="dray-image-"))
    try:
        folder.chmod(0o755)
        print(
            f"{interpreter} instead of {image.base}, as user {user if user is not None else os.geteuid()}",
            flush=True,
        )
        run_image(replay_stages(folder, interpreter), user)
    except ReplayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        if not chosen.keep:
            shutil.rmtree(folder)
    print("the steps of the image work, and `dray up` works in it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
