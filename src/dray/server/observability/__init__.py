"""Metrics, logs and audit records of requests and webhook calls, with the table of metrics. It must not
decide anything about a request. app, the cluster and the commands that print metrics may import it.
"""
