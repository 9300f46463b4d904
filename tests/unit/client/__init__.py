"""The client, with servers that misbehave on purpose."""
