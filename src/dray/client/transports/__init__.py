"""Implementations of the transport protocol in `dray.client.transport`: HTTP with TLS, frames on a socket of
the process that started this one, and the guard that sends writes only while the process leads. It must not
know kinds, objects, retries or rate limits. `dray.client`, and the code in `dray.cluster` and `dray.cli` that
builds clients, import it.
"""
