"""REST surface over the Python API: every route is a thin skin over `Store` and `Engine`."""

from .app import create_app
from .limits import ServerLimits
from .serving import serve

__all__ = ["ServerLimits", "create_app", "serve"]
