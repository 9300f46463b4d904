"""Publishes the devices of a driver as ResourceSlices.

The package holds the desired pools, the page layout, the diff against existing slices, the slice writer, the
detection of fields that the server drops, and the publisher that keeps slices as published. It must not
contain code that prepares claims, calls the author's methods or serves gRPC. Only `dray.driver` and
`dray.driver.service` import it; its pure modules (`pool_plan`, `retained_devices`, `layout`,
`dropped_fields`) import no client.
"""
