"""Authorization of requests: RBAC, the node authorizer, bootstrap roles, impersonation and access reviews.

It decides from the attributes of a request. It must not look at the contents of a change; that is
`restriction`. `restriction`, the registry, `background` and `app` may import it.
"""
