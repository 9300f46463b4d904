"""Rules of volumes and of the mounts that use them.

One table has all types of volumes; types with more than required members have a rule of their own. Nothing
here knows of containers beyond their mounts. The packages of pods import it.
"""
