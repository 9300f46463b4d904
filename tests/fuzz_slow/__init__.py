"""A fuzzer for slowness: climbs from random problems to ones that take the search ever longer."""
