"""Documents of a framework, filed together: all of them, or an error that names the others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from kvpacket_store.api import IngestReport, Store
from kvpacket_store.errors import IncompleteUpsertError
from kvpacket_store.types import Document

__all__ = ["content_id", "file_documents"]


def content_id(document: Document) -> str:
    """Return an id that text and metadata make, for a document that has none.

    Examples
    --------
    >>> content_id(Document("", "Ice floats."))[:16]
    'doc-eb476eec1f55'
    """
    parts = json.dumps([document.text, dict(document.metadata)], sort_keys=True, default=str)
    return f"doc-{hashlib.sha256(parts.encode()).hexdigest()[:32]}"


def file_documents(store: Store, namespace: str, documents: Iterable[Document]) -> IngestReport:
    """Ingest documents; what is unchanged prefills nothing, nor does new metadata.

    Raises
    ------
    IncompleteUpsertError
        Some could not be filed. The others are.
    """
    taken = list(documents)
    report = store.ingest(taken, namespace=namespace)
    if report.errors:
        failed = {failure.id: failure.error for failure in report.errors}
        raise IncompleteUpsertError([d.id for d in taken if d.id not in failed], failed)
    return report
