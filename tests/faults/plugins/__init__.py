"""Drivers that unregister, restart, roll over, hang, lie or are killed: slices go when they should (R-14)."""
