"""Tests of `deploy/`: the image, the manifests, the chart, the units, the rules of Prometheus."""
