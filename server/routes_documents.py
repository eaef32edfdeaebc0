"""Documents are listed, shown and deleted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.convertors import Convertor, register_url_convertor

from kvpacket_store.api import Listing, Store
from kvpacket_store.errors import NotFoundError

from .callers import Caller, Reader, Writer
from .schemas import Text
from .wiring import ServicesOfRequest

__all__ = ["router"]

router = APIRouter()

_MOST_LISTED = 1000
_REPLACED, _REPLACED_SENT = "\ufffd", b"%EF%BF%BD"


class _IdConvertor(Convertor[str]):
    """All that follows, slashes and line ends too: Starlette's ``path`` loses a last line end."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("id", _IdConvertor())


async def _document_id(request: Request, document_id: str) -> str:
    """Return the id that the path ends with.

    Servers decode bytes that are no UTF-8 to U+FFFD: such a path is no document's, not even that
    of a document which has the character in its id.
    """
    raw_path: bytes = request.scope.get("raw_path") or b""
    if document_id.count(_REPLACED) > raw_path.upper().count(_REPLACED_SENT):
        raise NotFoundError("no document has this id: it is no UTF-8")
    return document_id


DocumentId = Annotated[str, Depends(_document_id)]


@router.get("/documents")
async def list_documents(
    caller: Reader,
    services: ServicesOfRequest,
    limit: Annotated[int, Query(ge=1, le=_MOST_LISTED)] = 100,
    after: Text | None = None,
    namespace: Text | None = None,
) -> dict[str, Any]:
    """Answer as ``kvps list --json``: a page, ordered by id; ``next`` is the next ``after``."""
    store = services.store
    work = services.lookups.submit(lambda _: [_page(store, caller, namespace, limit, after)])
    return (await work.last()).to_dict()


def _page(
    store: Store, caller: Caller, asked: str | None, limit: int, after: str | None
) -> Listing:
    namespace = caller.namespace_for(asked)
    try:
        return store.list(namespace=namespace, limit=limit, after=after)
    except NotFoundError:
        if caller.namespace is None:
            raise
        return Listing([], None, [])  # a key's namespace is there before its documents


@router.get("/documents/{document_id:id}")
async def show(
    document_id: DocumentId,
    caller: Reader,
    services: ServicesOfRequest,
    text: bool = False,
    namespace: Text | None = None,
) -> dict[str, Any]:
    """Give one document as a listing does; its text and content hash with ``?text=true``."""
    own, store = caller.namespace_for(namespace), services.store
    read = store.show if text else store.entry
    work = services.lookups.submit(lambda _: [read(document_id, namespace=own)])
    return await work.last()


@router.delete("/documents/{document_id:id}")
async def delete(
    document_id: DocumentId,
    caller: Writer,
    services: ServicesOfRequest,
    namespace: Text | None = None,
) -> dict[str, Any]:
    """Delete a document, and the packets that no other shares: as ``kvps delete --json``."""
    own, store = caller.namespace_for(namespace), services.store

    def produce(_cancelled: threading.Event) -> Iterator[str]:
        store.delete(document_id, namespace=own)
        yield document_id

    deleted = await services.lookups.submit(produce).last()
    return {"deleted": [deleted], "absent": []}
