"""How dray talks to an API server: transports, typed verbs, informers, events, leases.

It works the same against dray's own server and any Kubernetes API server, and it knows neither the server's
inside nor what objects are for. Schedulers, controllers, node agents, drivers and doors import it.
"""
