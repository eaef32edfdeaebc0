"""LangChain, from a retriever to an answer: run after ``make demo``."""

import sys

import kvpacket_store as kv
from kvpacket_store.integrations.langchain import ChatKVPacket, KVPacketRetriever


def answer(store_path: str, question: str) -> str:
    """Retrieve with LangChain's interface, and answer from the packets of what was found."""
    with kv.Store.open(store_path) as store:
        engine = kv.Engine(store)
        documents = KVPacketRetriever(engine=engine, k=5).invoke(question)
        return str(ChatKVPacket(engine=engine).invoke(question, documents=documents).content)


if __name__ == "__main__":
    print(answer(sys.argv[1], sys.argv[2]))
