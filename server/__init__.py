"""REST surface over the Python API: every route is a thin skin over `Store` and `Engine`."""

from .app import create_app
from .key_file import add_key, read_keys
from .limits import ServerLimits
from .serving import serve

__all__ = ["ServerLimits", "add_key", "create_app", "read_keys", "serve"]
