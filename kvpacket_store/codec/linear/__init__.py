"""Level ``linear``: K and V predicted from what is already decoded (``docs/format.md`` §7)."""
