"""Self-contained values: quantities, versions, names, label selectors, node selectors, bounds of caches.

A module here reads one kind of value from its text, compares and renders it as Kubernetes does, and says in
words why a text is refused. Nothing here knows what a device, a claim or a gate is, and nothing of dray is
imported but `dray.errors`. Anybody above may import these modules.
"""
