"""The Kubernetes API client: transports, typed verbs, informers, events, leases and webhook certificates.

It works the same against dray's own server and any Kubernetes API server. It must not know the internals of a
server nor what objects are for. The scheduler, the controllers, node agents, drivers, `cluster` and `cli`
import it.
"""
