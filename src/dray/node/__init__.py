"""The node agent, the counterpart of the kubelet: prepares claims through drivers, runs pods, reports status.

Decisions are pure functions over a record that is durable before any driver is called. The agent does not
allocate devices, and it reaches the API server only through `client`. `cluster` and `cli` import it, and no
other service does.
"""
