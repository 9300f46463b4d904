"""The example manifests do what their comments say."""
