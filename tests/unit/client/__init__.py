"""The client, against servers that misbehave on purpose."""
