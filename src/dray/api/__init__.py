"""API types: the objects of every kind, their versions, defaults, conversion and validation.

Objects are frozen structs in one internal version (`resource.k8s.io/v1`); bytes and older versions are
converted to it here and nowhere else. Nothing in this package does I/O, reads a clock or searches for
devices. Every package above it may import it.
"""
