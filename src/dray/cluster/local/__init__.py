"""The whole cluster, as `dray up` runs it: its services, nodes with example devices, the
simulated kubelet, the in-process transport and the activity log. It must not contain code that a standalone
service needs. Only `dray.cli` imports it.
"""
