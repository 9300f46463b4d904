"""Background tasks of the server: garbage collection, event expiry, bootstrap objects and compaction of the
store's history. They write objects only through the registry and must not answer requests. Only app may
import the package.
"""
