"""API objects as the server stores and changes them: the stored object with its key, the pending object that
a request wants to store, conversion between storage and served versions, and generated identifiers. It must
not depend on HTTP, the cache, admission or any verb. Every package of the server may import it; it imports
none of them.
"""
