"""The one read and write path of resources: dispatch by verb, create, update, patch, delete, pod
subresources, get, list and watch, strategies per kind, object metadata and selectors. Every write of an
object goes through its object registry; it must not parse HTTP or contain rules about users. background and
app may import it.
"""
