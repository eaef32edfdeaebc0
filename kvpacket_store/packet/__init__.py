"""Room: see docs/architecture.md."""
