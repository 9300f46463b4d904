"""`python -m dray.cli` is the `dray` command."""

from dray.cli import main

main()
