"""Admission webhooks asked: who is in force, how they are called, and what their answers do to a request.

What decides (which webhook, which version, what an answer means) is in `api.admission`; here it is carried
out, and nothing is stored. The registry and the errands of the server ask it; the server puts it together.
"""
