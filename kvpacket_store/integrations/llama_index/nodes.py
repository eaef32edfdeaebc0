"""LlamaIndex's nodes ↔ what an engine takes and a store gives."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, TypeAlias

from llama_index.core.schema import (
    BaseNode,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
from pydantic import BeforeValidator, Field

from kvpacket_store.api import Store
from kvpacket_store.api.incoming import MAX_ID_CHARS
from kvpacket_store.api.selection import DocumentItem
from kvpacket_store.errors import NotFoundError
from kvpacket_store.integrations.filing import file_documents
from kvpacket_store.integrations.handles import EngineHandle
from kvpacket_store.integrations.matching import ForeignText, items_of, plain_metadata
from kvpacket_store.integrations.retrieval import RetrievedSegment
from kvpacket_store.types import Document

__all__ = [
    "AnyNode",
    "EngineField",
    "delete_nodes",
    "delete_source",
    "file_nodes",
    "to_items",
    "to_node",
]

AnyNode: TypeAlias = DocumentItem | BaseNode | NodeWithScore
EngineField: TypeAlias = Annotated[
    Any, BeforeValidator(EngineHandle.of), Field(exclude=True, repr=False)
]
"""Takes an `Engine`, holds an `EngineHandle`, and is left out of what is written as JSON."""

_OURS = ("document_id", "segment", "packet_key", "score")
_SOURCES = "llama-index-sources/"


def to_items(store: Store, namespace: str, documents: Iterable[AnyNode]) -> list[DocumentItem]:
    """Return nodes as texts by content; what an engine takes anyway stays."""

    def foreign(item: AnyNode) -> DocumentItem | ForeignText:
        node = item.node if isinstance(item, NodeWithScore) else item
        if not isinstance(node, BaseNode):
            return node
        return ForeignText(_text(node), node.metadata, node.node_id)

    return items_of(store, namespace, map(foreign, documents))


def to_node(found: RetrievedSegment) -> NodeWithScore:
    """Return a segment that was found as a node; what it names its packet by is for no model."""
    source = RelatedNodeInfo(node_id=str(found.metadata["document_id"]))
    node = TextNode(
        id_=found.id,
        text=found.text,
        metadata=found.metadata,
        relationships={NodeRelationship.SOURCE: source},
        excluded_llm_metadata_keys=list(_OURS),
        excluded_embed_metadata_keys=list(_OURS),
    )
    return NodeWithScore(node=node, score=found.score)


def file_nodes(store: Store, namespace: str, nodes: Sequence[BaseNode]) -> None:
    """File nodes as documents under their ids, and remember which source each is from.

    Raises
    ------
    IncompleteUpsertError
        Some could not be filed. The others are.
    """
    taken = [node for node in nodes if _text(node).strip()]
    sources: dict[str, dict[str, bytes]] = {}
    for node in taken:
        if len(node.node_id) > MAX_ID_CHARS:
            continue  # which is refused below
        sources.setdefault(node.ref_doc_id or node.node_id, {})[node.node_id] = b""
    for source, own in sources.items():  # first: what is filed can then always be deleted
        store.packets.put_values(namespace, _SOURCES + source, own)
    documents = (Document(n.node_id, _text(n), plain_metadata(n.metadata)) for n in taken)
    file_documents(store, namespace, documents)


def delete_source(store: Store, namespace: str, source: str) -> None:
    """Delete the documents of all nodes that are from this source; none is no error."""
    collection = _SOURCES + source
    node_ids = [node_id for node_id, _ in store.packets.iter_values(namespace, collection)]
    delete_nodes(store, namespace, node_ids)
    store.packets.delete_values(namespace, collection, node_ids)


def delete_nodes(store: Store, namespace: str, node_ids: Iterable[str]) -> None:
    """Delete the documents of nodes; one that is not there is no error."""
    for node_id in node_ids:
        with contextlib.suppress(NotFoundError):
            store.delete(node_id, namespace=namespace)


def _text(node: BaseNode) -> str:
    return node.get_content(metadata_mode=MetadataMode.NONE)
