"""The controllers: reconcilers of claims, device taints, nodes and service accounts, and the runner that
starts them.

They observe through informers, ask `claims` and `placement` for decisions and write the resulting actions;
they must not decide themselves, and they use only the Kubernetes API, so any API server will do. `cluster`
and `cli` import this package; other services never do.
"""
