"""An existing FAISS retriever in LangChain: two lines have it answered from packets."""

import sys

from langchain_community.vectorstores import FAISS
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever

import kvpacket_store as kv
from kvpacket_store.integrations.langchain import ChatKVPacket


class MiniLM(Embeddings):
    """The embedder of the store; yours is another, which changes nothing here."""

    def __init__(self, store: kv.Store) -> None:
        self.embedder = store.embedder

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts."""
        return self.embedder.embed(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        """Embed a question."""
        return self.embed_documents([text])[0]


def existing_retriever(store: kv.Store) -> BaseRetriever:
    """Index texts with their titles, as anybody would who knows nothing of packets."""
    shown = [store.show(entry.id) for entry in store.list().documents]
    texts = [document["text"] for document in shown]
    titles = [{"title": document["metadata"].get("title")} for document in shown]
    index = FAISS.from_texts(texts, MiniLM(store), metadatas=titles)
    return index.as_retriever(search_kwargs={"k": 3})


def answer(engine: kv.Engine, retriever: BaseRetriever, question: str) -> str:
    """Answer from what the retriever finds, matched with packets by its content."""
    chat = ChatKVPacket(engine=engine, retriever=retriever)  # keep=True files what is new to it
    return str(chat.invoke(question).content)


if __name__ == "__main__":
    with kv.Store.open(sys.argv[1]) as opened:
        print(answer(kv.Engine(opened), existing_retriever(opened), sys.argv[2]))
