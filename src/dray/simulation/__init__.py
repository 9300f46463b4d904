"""The decisions without the world: a cluster in files, its pods placed, answers compared and timed.

Bundles, placings, vectors and scenarios live here, all made of the pure packages below; nothing here opens
files, prints or talks to a server. The doors (`cli`, later `web`) import it; nothing below may.
"""
