"""Bundles: documents with their packets in one file, on the way from store to store.

``docs/bundle.md`` is normative. Nothing here knows tensors or models: a record is opaque, and
whoever imports a bundle hands in what looks at it.
"""

from kvpacket_store.bundle.bundle import Bundle, BundledDocument, BundledPackets, read_bundle
from kvpacket_store.bundle.identity import BundleIdentity, require_same_identity
from kvpacket_store.bundle.importer import import_bundle
from kvpacket_store.bundle.limits import BundleLimits
from kvpacket_store.bundle.reports import BundleReport, ImportFailure, ImportReport
from kvpacket_store.bundle.writer import write_bundle

__all__ = [
    "Bundle",
    "BundleIdentity",
    "BundleLimits",
    "BundleReport",
    "BundledDocument",
    "BundledPackets",
    "ImportFailure",
    "ImportReport",
    "import_bundle",
    "read_bundle",
    "require_same_identity",
    "write_bundle",
]
