"""The rules that may refuse a candidate, one file each.

Static rules (selectors, amounts a device could ever give, taints, node selectors) depend on the device and
the want alone and are judged once for both. Dynamic rules (capacity left, counters, constraints) look
at the board. Only options and search import this package; its order is the order of explanation.
"""
