"""Prefill every document once, offline; answer from packets."""
