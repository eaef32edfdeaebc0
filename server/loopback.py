"""Which hosts are this machine alone."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

__all__ = ["is_loopback", "is_sent_to_loopback"]


def is_loopback(host: str) -> bool:
    """Say whether a name or address reaches this machine alone.

    Examples
    --------
    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("a.org")
    (True, True, False, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_sent_to_loopback(host_header: str) -> bool:
    """Say whether a ``Host`` names this machine as `is_loopback` knows it.

    Examples
    --------
    >>> is_sent_to_loopback("127.0.0.1:8000"), is_sent_to_loopback("[::1]:80")
    (True, True)
    >>> is_sent_to_loopback("rebound.example:8000"), is_sent_to_loopback("")
    (False, False)
    """
    try:
        return is_loopback(urlsplit(f"//{host_header}").hostname or "")
    except ValueError:
        return False
