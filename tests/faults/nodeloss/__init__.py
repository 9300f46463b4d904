"""R-13: force deletes and lost nodes; a device returns only when its node released it or was fenced."""
