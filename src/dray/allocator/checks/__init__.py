"""Checks: the rules that may refuse a candidate, one module each.

Static rules (amounts a device could ever give, taints) depend on the device and the alternative only; the
inventory and the candidate sets evaluate them once for both. Dynamic rules (capacity left, counters,
constraints) read the partial solution; the search applies them. This package must not contain the order of
the search or message texts. Only `inventory` and `search` import it.
"""
