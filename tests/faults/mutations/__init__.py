"""S-07 on a node: calls that are broken in every way, and state files that were changed."""
