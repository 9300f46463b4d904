"""Authorization of requests: policy rules, RBAC, the node authorizer with its graph of pods and nodes,
bootstrap roles, impersonation and access reviews. It must not look at the contents of a change; that is
restriction. restriction, registry, background and app may import it.
"""
