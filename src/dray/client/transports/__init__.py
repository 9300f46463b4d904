"""Implementations of the transport protocol in `dray.client.transport`: HTTP with TLS, an ASGI application in
this process, and the guard that sends writes only while the process leads. It must not know kinds, objects,
retries or rate limits. `dray.client`, and the code in `dray.cluster` and `dray.cli` that puts clients
together, import it.
"""
