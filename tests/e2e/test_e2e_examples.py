"""The examples run as they are printed."""

import importlib.util
import threading
import time
from pathlib import Path

import pytest
import uvicorn
from kvpacket_store._server import create_app

import kvpacket_store as kv

pytestmark = pytest.mark.e2e
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_langchain_example_answers(smollm2_engine):
    found = load("langchain_answer").answer(str(smollm2_engine.store.path), QUESTION)
    assert found == smollm2_engine.generate(QUESTION, top_k=5).text
    assert "Mask of Anarchy" in found


QUESTION = "Who wrote the political poem The Mask of Anarchy?"


@pytest.mark.filterwarnings("ignore:.langchain-community. is being sunset:DeprecationWarning")
def test_an_existing_faiss_retriever_is_answered_from_packets(smollm2_engine, monkeypatch):
    example = load("langchain_faiss")
    store = smollm2_engine.store
    retriever = example.existing_retriever(store)
    monkeypatch.setattr(store.prefiller, "segment", lambda _: pytest.fail("prefilled"))
    found = example.answer(smollm2_engine, retriever, QUESTION)
    by_text = {store.show(e.id)["text"]: e.id for e in store.list().documents}
    ids = [by_text[document.page_content] for document in retriever.invoke(QUESTION)]
    assert found == smollm2_engine.generate(QUESTION, documents=ids).text
    assert "Mask of Anarchy" in found


def test_a_llama_index_query_engine_is_answered_from_packets(smollm2_engine, monkeypatch):
    example = load("llama_index_query_engine")
    retriever = example.KVPacketRetriever(smollm2_engine)
    monkeypatch.setattr(
        smollm2_engine.store.prefiller, "segment", lambda _: pytest.fail("prefilled")
    )
    found = example.answer(smollm2_engine, retriever, QUESTION)
    assert found == smollm2_engine.generate(QUESTION, top_k=5).text


@pytest.fixture
def url(tmp_path, smollm2_store):
    """A server on loopback over a store of its own; the model is the one that is loaded."""
    model, embedder = smollm2_store.model, smollm2_store.embedder
    with kv.Store.create(tmp_path / "own.kvps", model=model, embedder=embedder) as store:
        app = create_app(store, engine=kv.Engine(store))
        config = uvicorn.Config(app, port=0, log_config=None, lifespan="on")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        server.should_exit = True
        thread.join()


def test_plain_http_and_the_openai_client_answer(url):
    text = {"id": "rhine", "text": "The Rhine rises in the Swiss Alps."}
    question = "Where does the Rhine rise?"
    found = load("plain_http").answer(url, question, text)
    assert "Alps" in found["answer"]
    assert found["documents"][0]["id"] == "rhine"
    assert load("openai_client").answer(url, question, text["text"]) == found["answer"]


@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")  # transformers, about pad and mask
def test_plain_transformers_gives_the_engines_answer(smollm2_engine, smollm2_store):
    ids = [entry.id for entry in smollm2_store.list(limit=3).documents]
    documents = [*ids, kv.Text("Nobody filed this text about an island in the north.")]
    for question in (QUESTION, "What is in the north?"):
        answer = smollm2_engine.generate(
            question, documents=documents, decode="full", max_new_tokens=24
        )
        cache, input_ids = smollm2_engine.assemble(question, documents=documents)
        output = smollm2_store.model.hf.generate(
            input_ids, past_key_values=cache, max_new_tokens=24, do_sample=False
        )
        eos = smollm2_store.model.eos_ids
        said = [i for i in output[0, input_ids.shape[1] :].tolist() if i not in eos]
        assert said == answer.token_ids


@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")  # transformers, about pad and mask
def test_the_readmes_python_runs(tmp_path, monkeypatch):
    readme = (EXAMPLES.parent / "README.md").read_text()
    code = readme.partition("```python\n")[2].partition("```")[0]
    assert "Store.create" in code
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    assert "Alps" in names["answer"].text
    assert names["answer"].usage.cached_tokens > 0
    names["store"].close()
