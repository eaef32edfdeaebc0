"""REST surface over the Python API."""
