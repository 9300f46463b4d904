"""The kit for drivers, and the suite that drivers are held against."""
