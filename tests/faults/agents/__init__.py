"""R-12: agents that are killed while they prepare and give back, and whose checkpoints are spoiled."""
