"""The lines of the specification about cost: each has a measurement and a table of figures.

It has the lines, the objects they are measured with, and the program; it must not contain limits that fail a
build. Only tests import it.
"""
