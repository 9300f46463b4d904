"""`dray` without what holds devices back after a restore: a broken build, to show what that is good for.

Its server gives out devices whoever may have them, and its agents tell nobody what they have.
"""

from __future__ import annotations

from typing import Any

from dray.cli import main
from dray.node.claims.restore_accounting import Accounting
from dray.server.ledger.restore_quarantine import Aftermath


async def _nothing(*_: Any) -> None:
    pass


if __name__ == "__main__":
    Aftermath.is_open = False  # type: ignore[assignment, method-assign]
    Accounting.account = _nothing  # type: ignore[assignment, method-assign]
    main()
