"""The `kubectl` that is installed, run against a server of the tests."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

NO_KUBECTL = "NO KUBECTL: the server is NOT tested with kubectl; put `kubectl` on PATH"
LONGEST = 60


@dataclass(frozen=True)
class Ran:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """The words of each line."""
        return [line.split() for line in self.out.splitlines()]

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Kubectl:
    """Runs kubectl in a namespace of its own."""

    program: str
    environment: Mapping[str, str]
    namespace: str

    def __call__(
        self, *arguments: str, given: Any = None, fails: bool | None = False, **environment: str
    ) -> Ran:
        """Run a command; `given` goes to its standard input, as JSON unless it is text. With
        `fails=None` it may fail or not.
        """
        text = given if isinstance(given, str) or given is None else _manifest(given)
        done = subprocess.run(
            [self.program, "-n", self.namespace, *arguments],
            input=text,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        ran = Ran(done.returncode, done.stdout, done.stderr)
        assert fails is None or (ran.code != 0) == fails, (
            f"kubectl {' '.join(arguments)}\n{ran.out}\n{ran.err}"
        )
        return ran

    def get(self, *arguments: str) -> Any:
        """What there is, as documents."""
        return self("get", *arguments, "-o", "json").document

    @contextmanager
    def beside(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A command that runs while something else happens."""
        process = subprocess.Popen(
            [self.program, "-n", self.namespace, *arguments],
            env=dict(self.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def _manifest(given: Any) -> str:
    documents = given if isinstance(given, list) else [given]
    return "\n".join(json.dumps(document) for document in documents)
