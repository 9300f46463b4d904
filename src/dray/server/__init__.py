"""A Kubernetes-compatible API server: one door to the objects, guarded by rules, rights and the ledger.

Requests are decoded, judged and stored here, and watches are fed; what to do with the objects is decided
elsewhere. The composition root and its tests import it; other services meet it only through its API.
"""
