"""Self-contained values: quantities, versions, names, request names, selectors, bounds of caches.

A module here parses one kind of value from its text, compares and renders it as Kubernetes does, and explains
why a text is refused. Nothing here depends on API objects or gates, and the modules import nothing of
dray but `dray.errors` and each other. Every other package may import them.
"""
