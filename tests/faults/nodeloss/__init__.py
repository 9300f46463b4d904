"""R-13: force deletes and lost nodes; a device comes back only when its node let go or was fenced."""
