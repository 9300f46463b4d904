"""Transactions of the client: writes of several objects in one call, all of them or none.

It must not decide what is written together, nor hide a refusal: on a server without transactions the callers
write one by one. Whatever may import `client` may import it.
"""
