"""`python -m dray` is the command `dray`."""

from dray.cli import main

main()
