"""A whole server in a process of its own, asked by the clients that people really use.

No test here looks into the server: everything goes over TLS and HTTP, through programs and libraries of
others. Nothing else imports from here.
"""
