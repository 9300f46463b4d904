"""Request names in allocation results, constraints and pods: `request`, or `request/subrequest`."""

from __future__ import annotations

from typing import NamedTuple


class RequestName(NamedTuple):
    """The name of a request, and of one of its alternatives; `subrequest` is empty for the request itself."""

    request: str
    subrequest: str = ""

    @classmethod
    def parse(cls, text: str) -> RequestName:
        """Split a name as the API writes it."""
        request, _, subrequest = text.partition("/")
        return cls(request, subrequest)

    def __str__(self) -> str:
        return f"{self.request}/{self.subrequest}" if self.subrequest else self.request
