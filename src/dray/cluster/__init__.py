"""The composition root: the only code that wires concrete stores, servers and services together.

It turns options of people (addresses, directories, gates) into running services and must not decide anything
about devices. `cli` imports it, and no package below does.
"""
