"""The resources the server offers and the discovery documents made from them, legacy and aggregated. It must
not know objects, users or the store. openapi, registry and app may import it.
"""
