"""The scheduler: a queue of pending pods, the loop that places and binds them, and the reports on pods that
wait.

Decisions belong to `placement` and `claims`; this package queues, writes and reports. It reaches the cluster
only through `client`, so any Kubernetes API server will do. `cluster` and `cli` import it, and no other
service does.
"""
