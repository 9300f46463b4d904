"""The HTTP side of the API server: listener, connection limits, request cycle, ASGI, routing, negotiation,
request bodies, responses, flow control, errors and endpoints outside the resources. It must not contain
what happens to objects: no strategies, no admission, no writes. Every package above objects, watch and
tables may import it; it imports only those three.
"""
