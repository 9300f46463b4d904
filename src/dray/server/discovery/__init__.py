"""The resources that the server serves, and the discovery documents built from them, legacy and aggregated.
It must not depend on objects, users or the store. openapi, registry and app may import it.
"""
