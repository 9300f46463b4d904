"""What a process says about itself: its log, its numbers, and whether it is well.

Nothing here knows what the numbers mean or what a request is: every service brings its own table of measures
and its own words. Services, `cluster` and `cli` import it; it imports only the clock and the vocabulary.
"""
