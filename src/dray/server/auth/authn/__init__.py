"""Authentication: maps request credentials to a user.

It contains certificates, keys, token files, service account tokens and kubeconfigs. It must not decide what a
user may do. `authz`, `restriction`, the registry, `app` and the commands that issue credentials may import
it.
"""
