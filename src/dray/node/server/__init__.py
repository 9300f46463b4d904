"""The HTTPS endpoint of a node agent for container logs, with its serving certificate and the authorization
of callers. It only reads: nothing about pods or containers is changed here. Only the agent imports it.
"""
