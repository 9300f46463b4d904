"""The composition root: the only code that wires concrete stores, servers and services together.

Choices of people (addresses, directories, gates) come in, running things come out; no decision about devices
is made here. The doors import it, and nothing below does.
"""
