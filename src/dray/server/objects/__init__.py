"""API objects as the server keeps and changes them: the stored object with its key, the pending object on its
way into the store, conversion between storage and served versions, and generated identifiers. It must not
know HTTP, the cache, admission or any verb. Every package of the server may import it; it imports none of
them.
"""
