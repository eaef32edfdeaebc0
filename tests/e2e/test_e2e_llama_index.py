"""LlamaIndex's pipeline in several processes: each opens the store for itself."""

import pytest
from llama_index.core import Document as LIDocument
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter

import kvpacket_store as kv
from kvpacket_store.benchmarks.paragraphs import example_documents
from kvpacket_store.integrations.llama_index import KVPacketPrefill, KVPacketRetriever

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_two_processes_file_into_one_store(tmp_path):
    documents = [
        LIDocument(id_=document.id, text=document.text) for document in example_documents()[:4]
    ]
    with kv.Store.create(tmp_path / "two.kvps", model="smollm2") as store:
        engine = kv.Engine(store)
        steps = [SentenceSplitter(chunk_size=128, chunk_overlap=0), KVPacketPrefill(engine=engine)]
        pipeline = IngestionPipeline(transformations=steps, disable_cache=True)
        nodes = pipeline.run(documents=documents, num_workers=2)
        assert {entry.id for entry in store.list(limit=1000).documents} == {
            node.node_id for node in nodes
        }
        assert store.verify(deep=True).damaged == []
        found = KVPacketRetriever(engine, similarity_top_k=1).retrieve(nodes[0].text)
        assert found[0].node.ref_doc_id == nodes[0].node_id
