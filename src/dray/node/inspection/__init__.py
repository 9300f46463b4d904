"""Inspection of a node beside its agent: drivers, CDI files, the checkpoint of a kubelet, leftovers.

It reads files and asks drivers who they are; it changes nothing and reaches no API server. `cli` imports it.
"""
