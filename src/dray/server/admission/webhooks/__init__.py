"""Admission webhooks: which are active, how they are called, and what their answers do to a request.

The decisions (which webhook, which version, what an answer means) are in `api.admission`; this package calls
webhooks and must not store anything. The registry and the subresource handlers use it; the assembly of the
server builds it.
"""
