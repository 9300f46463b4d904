"""The HTTPS endpoint of a node agent for container logs, with its serving certificate and the authorization
of clients. It only reads: it changes nothing about pods or containers. Only the agent imports it.
"""
