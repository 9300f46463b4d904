"""A Kubernetes-compatible API server over the project's store.

It contains HTTP, authentication and authorization, admission, the device ledger, the registry of objects,
watches and discovery. Scheduling, controllers and node agents are not part of it; they use its API like every
other client. dray.cluster and dray.cli may import it.
"""
