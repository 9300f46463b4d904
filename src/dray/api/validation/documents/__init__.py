"""Rules for the documents of small kinds: configuration, events, roles, nodes, namespaces, quotas, leases.

A rule takes a document, or a new and an old one, and yields errors; it must not read other objects. Only
`document_rules` imports it.
"""
