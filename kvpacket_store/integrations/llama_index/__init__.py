"""LlamaIndex: retriever, LLM, response synthesizer, ingestion transform, vector and document store.

Needs the extra ``kvpacket-store[llama-index]``. Every component can be pickled: another process
opens the store when it first needs it.
"""

from kvpacket_store.integrations.llama_index.document_store import (
    KVPacketDocumentStore,
    KVPacketKVStore,
)
from kvpacket_store.integrations.llama_index.llm import KVPacketLLM
from kvpacket_store.integrations.llama_index.retriever import KVPacketRetriever
from kvpacket_store.integrations.llama_index.synthesizer import KVPacketSynthesizer
from kvpacket_store.integrations.llama_index.transform import KVPacketPrefill
from kvpacket_store.integrations.llama_index.vector_store import KVPacketVectorStore

__all__ = [
    "KVPacketDocumentStore",
    "KVPacketKVStore",
    "KVPacketLLM",
    "KVPacketPrefill",
    "KVPacketRetriever",
    "KVPacketSynthesizer",
    "KVPacketVectorStore",
]
