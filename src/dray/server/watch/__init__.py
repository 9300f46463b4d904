"""The watch cache that follows the store, its periodic verification against the store, and the cache of
encoded watch events. It must not depend on HTTP, users or requests. Every package of the server except
objects may import it; it imports only objects.
"""
