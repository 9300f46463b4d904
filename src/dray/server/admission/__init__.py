"""Admission of the change of one object: the change itself, and rules on namespaces, names of claims, object
counts, pod priority, resource quota, taint rules and webhooks. A rule refuses a change or adds compares and
writes to its transaction; it must not write to the store, authenticate users or depend on the registry.
auth, audit, ledger, registry, observability and app may import it.
"""
