"""LlamaIndex's pipeline in several processes: each opens the store for itself."""

import pytest
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import TextNode

import kvpacket_store as kv
from kvpacket_store.benchmarks.paragraphs import example_documents
from kvpacket_store.integrations.llama_index import KVPacketPrefill, KVPacketRetriever

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_two_processes_file_into_one_store(tmp_path):
    # split already: LlamaIndex's splitters look for a tokenizer on the network when unpickled
    nodes = [TextNode(id_=d.id, text=d.text) for d in example_documents()[:4]]
    with kv.Store.create(tmp_path / "two.kvps", model="smollm2") as store:
        engine = kv.Engine(store)
        prefill = KVPacketPrefill(engine=engine)
        pipeline = IngestionPipeline(transformations=[prefill], disable_cache=True)
        pipeline.run(nodes=nodes, num_workers=2)
        filed = {entry.id for entry in store.list().documents}
        assert filed == {node.node_id for node in nodes}
        assert store.verify(deep=True).damaged == []
        found = KVPacketRetriever(engine, similarity_top_k=1).retrieve(nodes[0].text)
        assert found[0].node.ref_doc_id == nodes[0].node_id
