"""The vocabulary of the system: every object dray speaks about, its versions, defaults and rules.

Objects are frozen structs in one internal form (`resource.k8s.io/v1`); bytes and older versions are
brought to it at the edge, here, and nowhere else. Nothing in this package does I/O, knows the time or
searches for devices; everything above it may import it.
"""
