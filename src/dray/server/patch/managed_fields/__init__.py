"""Managed fields and server-side apply: field sets, entries, comparison of documents, apply, and the last-
applied annotation. It must not know requests or the store. The registry may import it.
"""
