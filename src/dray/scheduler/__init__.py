"""The loop around placement: pods wait here, are tried one after the other, and are bound.

What decides lives in `placement` and `claims`; here are only the waiting, the writing and the telling, and
they use nothing but `client`, so that any Kubernetes API server will do. `cluster` and `cli` import it, and
no other service does.
"""
