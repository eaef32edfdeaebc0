"""A query engine of LlamaIndex: two lines have it answered from packets."""

import sys

from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever

import kvpacket_store as kv
from kvpacket_store.integrations.llama_index import KVPacketRetriever, KVPacketSynthesizer


def answer(engine: kv.Engine, retriever: BaseRetriever, question: str) -> str:
    """Answer from the nodes of any retriever, matched with packets by their content."""
    query_engine = RetrieverQueryEngine(retriever, KVPacketSynthesizer(engine))
    return str(query_engine.query(question))


if __name__ == "__main__":
    with kv.Store.open(sys.argv[1]) as store:
        own = kv.Engine(store)
        print(answer(own, KVPacketRetriever(own), sys.argv[2]))  # or the retriever that you have
