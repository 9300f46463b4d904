"""Recorded allocation vectors: queries to the allocator with the answer of Kubernetes, our answer, and the
comparison of both with a reference model. It must not contain file access or placement of pods. Benchmarks
and commands import it, the scheduler never does.
"""
