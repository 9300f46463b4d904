"""Prepares and unprepares claims.

The package holds the conversion of allocated claims into what authors see, the checkpoint of prepared claims
with its CDI files, locks per claim, the claim lookup and the writer of device status. It must not contain
gRPC, sockets, publishing or command-line code. Only `dray.driver.service` imports it.
"""
