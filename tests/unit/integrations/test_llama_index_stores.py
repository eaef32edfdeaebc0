"""LlamaIndex: retriever, ingestion into a store, and its document store."""

import pickle

import pytest
from llama_index.core import Document as LIDocument
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.ingestion import DocstoreStrategy, IngestionCache, IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import MetadataMode, QueryBundle, TextNode, TransformComponent
from llama_index.core.storage.kvstore.types import BaseKVStore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)

from kvpacket_store.errors import IncompleteUpsertError, UsageError
from kvpacket_store.integrations.llama_index import (
    KVPacketDocumentStore,
    KVPacketKVStore,
    KVPacketPrefill,
    KVPacketRetriever,
    KVPacketVectorStore,
)

pytestmark = pytest.mark.anyio
PARAGRAPHS = [f"Paragraph {i} tells of river number {i}." for i in range(40)]


class Paragraphs(TransformComponent):
    """Splits at blank lines: as many nodes as paragraphs."""

    def __call__(self, nodes, **_):
        return [
            TextNode(
                id_=f"{node.id_}/{number}",
                text=text,
                metadata=node.metadata,
                relationships={"1": node.as_related_node_info()},
            )
            for node in nodes
            for number, text in enumerate(node.get_content(MetadataMode.NONE).split("\n\n"))
        ]


def pipeline_over(engine, strategy=DocstoreStrategy.UPSERTS, **options):
    return IngestionPipeline(
        transformations=[Paragraphs(), KVPacketPrefill(engine=engine)],
        docstore=KVPacketDocumentStore(engine.store),
        vector_store=KVPacketVectorStore(engine=engine),
        docstore_strategy=strategy,
        disable_cache=True,
        **options,
    )


def texts(engine):
    return sorted(engine.store.show(e.id)["text"] for e in engine.store.list().documents)


def document(name, *paragraphs):
    return LIDocument(id_=name, text="\n\n".join(paragraphs), metadata={"file": name})


async def test_retriever_sync_and_async_agree(engine):
    retriever = KVPacketRetriever(engine, similarity_top_k=2, where={"kind": "river"})
    found = retriever.retrieve("Where does the Rhine rise?")
    assert found[0].node.get_content(MetadataMode.NONE) == "The Rhine rises in the Alps."
    assert found[0].node.ref_doc_id == "rhine"
    assert found[0].score >= found[1].score
    again = await retriever.aretrieve(QueryBundle("Where does the Rhine rise?"))
    assert [n.to_dict() for n in again] == [n.to_dict() for n in found]
    assert "packet_key" not in found[0].node.get_content(MetadataMode.LLM)
    copy = pickle.loads(pickle.dumps(retriever))
    assert copy.retrieve("Where does the Rhine rise?")[0].node_id == found[0].node_id


def test_one_document_of_forty_chunks_is_retrievable_whole(empty_engine):
    nodes = pipeline_over(empty_engine).run(documents=[document("book", *PARAGRAPHS)])
    assert len(nodes) == 40
    assert texts(empty_engine) == sorted(PARAGRAPHS)
    for number, paragraph in enumerate(PARAGRAPHS):
        found = KVPacketRetriever(empty_engine, similarity_top_k=1).retrieve(paragraph)
        assert found[0].node.get_content(MetadataMode.NONE) == paragraph
        assert found[0].metadata["document_id"] == f"book/{number}"
    assert len(KVPacketDocumentStore(empty_engine.store).docs) == 1


def test_only_what_is_new_is_prefilled(empty_engine, monkeypatch):
    segment, calls = empty_engine.store.prefiller.segment, []
    monkeypatch.setattr(
        empty_engine.store.prefiller, "segment", lambda ids: calls.append(ids) or segment(ids)
    )
    run = pipeline_over(empty_engine).run
    run(documents=[document("a", "One.", "Two.")])
    assert len(calls) == 2
    assert run(documents=[document("a", "One.", "Two.")]) == []
    run(documents=[document("a", "One.", "Three.")])
    assert len(calls) == 4  # the source was deleted first, with the packets that only it had
    run(documents=[document("b", "One.", "Three.")])
    assert len(calls) == 4


@pytest.mark.parametrize(
    ("strategy", "left"),
    [
        (DocstoreStrategy.UPSERTS, ["B.", "New."]),
        (DocstoreStrategy.UPSERTS_AND_DELETE, ["New."]),
        (DocstoreStrategy.DUPLICATES_ONLY, ["B.", "New."]),
    ],
)
async def test_each_strategy_leaves_what_it_says_on_a_loop_and_off(new_store, strategy, left):
    from kvpacket_store.api import Engine

    for is_async in (False, True):
        engine = Engine(new_store(name=f"{is_async}.kvps"))
        pipeline = pipeline_over(engine, strategy)

        async def run(*documents, pipeline=pipeline, is_async=is_async):
            if is_async:
                return await pipeline.arun(documents=list(documents))
            return pipeline.run(documents=list(documents))

        await run(document("a", "Old.", "More."), document("b", "B."))
        await run(document("a", "New."))
        expected = left
        if strategy is DocstoreStrategy.DUPLICATES_ONLY:
            expected = ["B.", "More.", "New."]  # a/0 was replaced under its id, a/1 was not
        assert texts(engine) == sorted(expected)


def test_a_node_that_fails_is_an_error_and_the_others_are_filed(empty_engine):
    prefill = KVPacketPrefill(engine=empty_engine)
    nodes = [TextNode(text="Good.", id_="a"), TextNode(text="Bad.", id_="x" * 1001)]
    with pytest.raises(IncompleteUpsertError, match="1 of 2"):
        prefill(nodes)
    assert texts(empty_engine) == ["Good."]


def test_an_index_over_the_store_retrieves_and_filters(engine):
    vector_store = KVPacketVectorStore(engine=engine)
    vector_store.add([TextNode(text="Neon glows.", id_="neon", metadata={"kind": "gas", "no": 10})])

    def found(*filters, condition=FilterCondition.AND):
        query = VectorStoreQuery(
            query_str="glow",
            similarity_top_k=5,
            filters=MetadataFilters(filters=list(filters), condition=condition),
        )
        return sorted(node.metadata["document_id"] for node in vector_store.query(query).nodes)

    gas = MetadataFilter(key="kind", value="gas")
    assert found(gas) == ["neon", "oxygen"]
    at_least = MetadataFilter(key="no", value=9, operator=FilterOperator.GTE)
    at_most = MetadataFilter(key="no", value=9, operator=FilterOperator.LTE)
    assert found(gas, at_least) == ["neon"]
    assert found(at_least, at_most) == []
    assert found(MetadataFilter(key="kind", value=["gas", "x"], operator=FilterOperator.IN)) == [
        "neon",
        "oxygen",
    ]
    for refused in (
        [MetadataFilter(key="kind", value="gas", operator=FilterOperator.NE)],
        [gas, gas],
    ):
        with pytest.raises(UsageError, match="none that the store knows"):
            found(*refused)
    with pytest.raises(UsageError, match="and"):
        found(gas, at_least, condition=FilterCondition.OR)
    with pytest.raises(UsageError, match="text"):
        vector_store.query(VectorStoreQuery(query_embedding=[1.0]))
    with pytest.raises(UsageError, match="not by filters"):
        vector_store.delete_nodes(filters=MetadataFilters(filters=[gas]))
    vector_store.delete_nodes(["neon", "nobody"])
    assert found(gas) == ["oxygen"]


def test_llama_indexs_own_index_works_over_it(empty_engine):
    store = KVPacketVectorStore(engine=empty_engine)
    pipeline_over(empty_engine).run(documents=[document("a", "The Rhine rises in the Alps.")])
    index = VectorStoreIndex.from_vector_store(store, embed_model=MockEmbedding(embed_dim=3))
    found = index.as_retriever(similarity_top_k=1).retrieve("Rhine")
    assert found[0].node.get_content(MetadataMode.NONE) == "The Rhine rises in the Alps."


async def test_the_key_value_store_keeps_collections_apart(empty_engine):
    kv = KVPacketKVStore(empty_engine.store)
    assert isinstance(kv, BaseKVStore)
    kv.put("k", {"n": 1})
    kv.put("k", {"n": 2}, collection="other")
    await kv.aput_all([("l", {"é": [1, None]}), ("m", {})], batch_size=7)
    for get_all in (kv.get_all(), await kv.aget_all()):
        assert get_all == {"k": {"n": 1}, "l": {"é": [1, None]}, "m": {}}
    assert kv.get("k", collection="other") == await kv.aget("k", collection="other") == {"n": 2}
    assert kv.get("nobody") is None
    assert [kv.delete("k"), kv.delete("k"), await kv.adelete("l")] == [True, False, True]
    await kv.aput("n", {"x": 1})
    assert sorted(pickle.loads(pickle.dumps(kv)).get_all()) == ["m", "n"]
    assert KVPacketKVStore(empty_engine.store, "elsewhere").get_all() == {}


def test_the_document_store_and_cache_are_there_after_opening_again(empty_engine):
    docstore = KVPacketDocumentStore(empty_engine.store)
    docstore.add_documents([TextNode(text="x", id_="a"), TextNode(text="y", id_="b")])
    docstore.delete_document("b")
    again = KVPacketDocumentStore(empty_engine.store)
    assert set(again.docs) == {"a"}
    assert again.get_document_hash("a") == TextNode(text="x", id_="a").hash
    cache = IngestionCache(cache=KVPacketKVStore(empty_engine.store))
    splitting = IngestionPipeline(transformations=[SentenceSplitter()], cache=cache)
    first = splitting.run(documents=[document("a", "One. Two.")])
    second = splitting.run(documents=[document("a", "One. Two.")])
    assert [n.node_id for n in first] == [n.node_id for n in second]
    cache.clear()
    assert KVPacketKVStore(empty_engine.store).get_all(cache.collection) == {}


def test_the_transform_comes_back_from_a_pickle(empty_engine):
    prefill = pickle.loads(pickle.dumps(KVPacketPrefill(engine=empty_engine, namespace="n")))
    prefill([TextNode(text="Filed.", id_="a")])
    assert empty_engine.store.show("a", namespace="n")["text"] == "Filed."
