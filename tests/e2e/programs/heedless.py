"""`dray` without what holds devices back after a restore: a broken build, to show what that is good for.

Its server gives out devices whoever may have them, and its agents tell nobody what they have.
"""

from __future__ import annotations

from typing import Any

from dray.cli import main
from dray.node.claims.restore_accounting import RestoreAccounting
from dray.server.ledger.restore_quarantine import RestoreQuarantine


async def _nothing(*_: Any) -> None:
    pass


if __name__ == "__main__":
    RestoreQuarantine.is_open = False  # type: ignore[assignment, method-assign]
    RestoreAccounting.report_after_restore = _nothing  # type: ignore[assignment, method-assign]
    main()
