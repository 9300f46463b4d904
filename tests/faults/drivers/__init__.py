"""R-11: a driver of the kit is killed at every point of a call where that could matter."""
