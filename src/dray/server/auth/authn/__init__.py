"""Authentication: certificates, keys, token files, service account tokens, kubeconfigs, and the mapping of
request credentials to a user. It must not decide what a user may do. authz, restriction, the registry, app
and the commands that issue credentials may import it.
"""
