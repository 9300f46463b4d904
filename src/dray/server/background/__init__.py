"""What the server does by itself: garbage collection, event expiry, bootstrap objects and compaction of the
store's history. It writes only through the registry and must not answer requests. Only app may import it.
"""
