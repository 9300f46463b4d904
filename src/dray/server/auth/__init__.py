"""Authentication and authorization: credentials, RBAC, the node authorizer, and rules on who may write what.

It identifies users, decides, and gives reasons. It must not serve HTTP or store objects. The assembly of the
server and the request cycle import it.
"""
