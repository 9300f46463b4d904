"""Container runtimes: one protocol, implemented by processes, by an OCI runtime, and by a fake.

They contain nothing about claims, drivers or the API; a container arrives as a `ContainerLaunch` with its
devices already turned into CDI edits. Only the node agent and the composition root import it.
"""
