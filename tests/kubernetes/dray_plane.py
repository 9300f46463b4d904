"""dray server as the only part of a control plane that is not of Kubernetes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from dray.server.auth.authn.certificates import CertificateAuthority
from tests.kubernetes.control_plane import ApiServerOptions, ServerPlane


class DrayPlane(ServerPlane):
    """`dray server` with its defaults, and what was started beside it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        data = folder / "data"
        super().__init__(folder, stack, CertificateAuthority.open(data / "keys"), ApiServerOptions())
        arguments = ["server", "--data-dir", str(data), "--port", str(self.port)]
        self.api_server = self.add_command([sys.executable, "-m", "dray", *arguments], "dray-server")

    @classmethod
    @contextmanager
    def open(cls, folder: Path) -> Iterator[Self]:
        """Start the server, and end everything that was started in the end."""
        (folder / "data").mkdir(parents=True, mode=0o700)
        with ExitStack() as stack:
            plane = cls(folder, stack)
            plane.wait_until_ready()
            yield plane
