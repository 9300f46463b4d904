"""A living container never loses its device: agents, drivers, servers, pods and claims go in every order."""
