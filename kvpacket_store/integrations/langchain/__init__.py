"""LangChain: retriever, chat model, document index and its record manager.

Needs the extra ``kvpacket-store[langchain]``.
"""

from kvpacket_store.integrations.langchain.chat import ChatKVPacket
from kvpacket_store.integrations.langchain.index import KVPacketIndex
from kvpacket_store.integrations.langchain.record_manager import KVPacketRecordManager
from kvpacket_store.integrations.langchain.retriever import KVPacketRetriever

__all__ = ["ChatKVPacket", "KVPacketIndex", "KVPacketRecordManager", "KVPacketRetriever"]
