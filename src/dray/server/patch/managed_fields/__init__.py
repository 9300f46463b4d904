"""Managed fields and server-side apply.

It contains field sets, their entries, the comparison of documents, apply, and the last-applied annotation. It
must not know requests or the store. The registry may import it.
"""
