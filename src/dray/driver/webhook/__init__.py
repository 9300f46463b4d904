"""The validating admission webhook of a driver.

The package holds the reviews of opaque parameters against the driver's schema, and the HTTPS server that
answers them. It must not contain schemas or their decoding (`dray.driver.parameters`) or manifests.
`dray.driver.service` and `dray.driver.deploy` import it.
"""
