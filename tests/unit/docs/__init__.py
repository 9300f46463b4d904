"""What the pages show is what happens."""
