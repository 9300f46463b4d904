"""R-11: a driver of the kit is killed in the middle of its work, at every place where that could matter."""
