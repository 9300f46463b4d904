"""Publishes a driver's devices as ResourceSlices: desired pools, page layout, the diff against existing
slices, the slice writer, detection of fields the server drops, and the publisher that keeps slices as
published. It must not contain code that prepares claims, calls the author's methods or serves gRPC. Only
`dray.driver` itself and `dray.driver.service` import it; the pure modules (`pool_plan`, `layout`,
`dropped_fields`) import no client.
"""
