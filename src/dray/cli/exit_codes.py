"""The exit codes of every command."""

from __future__ import annotations

from typing import Final

EXIT_YES: Final = 0
EXIT_NO: Final = 1
EXIT_INVALID_INPUT: Final = 2
"""The input is invalid, or the command line is wrong."""
EXIT_INTERNAL_ERROR: Final = 3
"""A bug in dray."""
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141
"""Nobody reads the output any more."""
