"""The ordered rules on a change of one object: the change itself, namespace lifecycle, object counts, pod
priority, resource quota, taint rule warnings and admission webhooks. A rule refuses a change or adds
compares and writes to its transaction; it must not write to the store, authenticate anybody or know the
registry. auth, audit, ledger, registry, observability and app may import it.
"""
