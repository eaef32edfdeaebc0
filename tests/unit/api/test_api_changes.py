"""Documents change while others ask; rows are damaged; callers pass what they should not."""

import threading

import pytest

from kvpacket_store.api import Engine, Store, prompts
from kvpacket_store.errors import NotFoundError, StoreCorruptError, StoreFullError, UsageError
from kvpacket_store.store.namespaces import find_namespace
from kvpacket_store.store.schema import Table, document_key, embedding_key
from kvpacket_store.types import Document

DOCS = [
    Document("rhine", "The Rhine rises in the Alps. It flows to the North Sea."),
    Document("elbe", "The Elbe rises in Bohemia and flows to the North Sea."),
]
QUESTION = "Where does the Rhine rise?"
SHORT = {"max_new_tokens": 3, "ignore_eos": True}


@pytest.fixture
def store(new_store):
    made = new_store(segment_tokens=64)
    made.ingest(DOCS)
    return made


def after_selection(monkeypatch, action):
    """Run ``action`` once, between the first selection and the reading of its packets."""
    select, waiting = prompts.select, [action]

    def selecting(*arguments):
        selected = select(*arguments)
        if waiting:
            waiting.pop()()
        return selected

    monkeypatch.setattr(prompts, "select", selecting)


def test_a_document_updated_after_it_was_selected_is_selected_again(store, monkeypatch):
    engine = Engine(store)
    update = [Document("rhine", "The Rhine rises in Switzerland, they say.")]
    after_selection(monkeypatch, lambda: store.ingest(update))
    answer = engine.generate(QUESTION, top_k=1, **SHORT)
    assert answer.fallbacks == []
    key = answer.documents[0].packets[0].packet_key
    assert key in [p["packet_key"] for p in store.show("rhine")["packets"]]


def test_a_retrieved_document_deleted_meanwhile_is_left_out(store, monkeypatch):
    engine = Engine(store)
    after_selection(monkeypatch, lambda: store.delete("rhine"))
    answer = engine.generate(QUESTION, top_k=1, **SHORT)
    assert [d.id for d in answer.documents] == ["elbe"]


def test_a_document_asked_for_by_id_and_deleted_meanwhile_is_not_found(store, monkeypatch):
    engine = Engine(store)
    after_selection(monkeypatch, lambda: store.delete("rhine"))
    with pytest.raises(NotFoundError, match="rhine"):
        engine.generate(QUESTION, documents=["rhine"], **SHORT)


def test_asking_while_documents_come_and_go_never_fails(store):
    engine, stop, failures = Engine(store), threading.Event(), []

    def churn():
        for number in range(1000):
            if stop.is_set():
                return
            store.ingest([Document("rhine", f"The Rhine rises in place {number}.")])
            store.delete("rhine")

    def ask():
        try:
            for _ in range(6):
                engine.generate(QUESTION, top_k=2, **SHORT)
        except Exception as error:
            failures.append(error)

    churning = threading.Thread(target=churn)
    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in (churning, *asking):
        thread.start()
    for thread in asking:
        thread.join()
    stop.set()
    churning.join()
    assert failures == []


def flip(store, table, key_of):
    """Change a byte of a row, as a bad disk would."""

    def action(tx):
        key = key_of(find_namespace(tx, "default").id)
        row = bytearray(tx.get(table, key))
        row[-1] ^= 1
        tx.put(table, key, bytes(row))

    store.packets._environment.write(action)


def test_ingesting_again_replaces_a_damaged_document_row(store):
    flip(store, Table.DOCUMENTS, lambda namespace: document_key(namespace, "rhine"))
    report = store.ingest(DOCS)
    assert report.documents.failed == 0
    assert report.documents.unchanged == 1
    assert store.show("rhine")["text"] == DOCS[0].text
    assert store.packets.check(deep=True) == []


def test_a_damaged_embedding_hides_one_segment_until_it_is_ingested_again(store):
    flip(
        store,
        Table.EMBEDDINGS,
        lambda namespace: embedding_key(document_key(namespace, "rhine"), 0),
    )
    answer = Engine(store).generate(QUESTION, top_k=5, **SHORT)
    assert [d.id for d in answer.documents] == ["elbe"]
    report = store.ingest(DOCS)
    assert (report.documents.updated, report.packets.added) == (1, 0)
    answer = Engine(store).generate(QUESTION, top_k=5, **SHORT)
    assert answer.documents[0].id == "rhine"


def test_a_cut_file_is_refused_instead_of_killing_the_process(store, tmp_path, tiny_model):
    store.ingest([Document(f"d{i}", f"Filler number {i}. " * 20) for i in range(10)])
    store.close()
    data = tmp_path / "store.kvps" / "data.mdb"
    with data.open("r+b") as file:
        file.truncate(data.stat().st_size // 2)
    with pytest.raises(StoreCorruptError, match="was cut"):
        Store.open(tmp_path / "store.kvps", model=tiny_model("llama"))


def test_what_fits_under_the_cap_is_stored_before_it_is_full(new_store):
    store = new_store("llama", "small.kvps", segment_tokens=64, max_bytes=3 << 20)
    documents = [Document(f"d{i}", f"Document number {i} has words. " * 8) for i in range(150)]
    with pytest.raises(StoreFullError):
        store.ingest(documents)
    assert 0 < store.stats().documents < 150
    assert store.packets.check(deep=True) == []


def test_what_is_no_document_fails_alone(store):
    report = store.ingest(
        [Document("g", "Good."), "bad", None, {"id": "x"}, Document("h", "Fine.")]
    )
    assert (report.documents.added, report.documents.failed) == (2, 3)


def test_a_second_document_of_one_id_is_an_error_not_a_replacement(store):
    report = store.ingest([Document("x", "First."), Document("x", "Second.")])
    assert (report.documents.added, report.documents.failed) == (1, 1)
    assert store.show("x")["text"] == "First."


def test_a_source_that_breaks_loses_nothing_that_came_before(store):
    def source():
        yield Document("before", "This one is complete.")
        raise OSError("the disk went away")

    with pytest.raises(OSError, match="went away"):
        store.ingest(source())
    assert store.show("before")["text"] == "This one is complete."


def test_texts_that_no_file_could_hold_are_made_plain(store):
    store.ingest([Document("odd", "a\ud800b\0c", {"x": "\ud800"})])
    assert store.show("odd")["text"] == "a?bc"


@pytest.mark.parametrize("documents", [None, 5, "text", Document("a", "b")])
def test_ingest_takes_an_iterable_of_documents(store, documents):
    with pytest.raises(UsageError, match="iterable"):
        store.ingest(documents)


@pytest.mark.parametrize("namespace", ["", "x" * 300])
def test_a_bad_namespace_is_the_callers_mistake_not_a_failed_document(store, namespace):
    with pytest.raises(UsageError):
        store.ingest(DOCS, namespace=namespace)


def test_an_absent_namespace_is_not_found(store):
    engine = Engine(store)
    for action in (
        lambda: engine.generate(QUESTION, namespace="nope", **SHORT),
        lambda: store.list(namespace="nope"),
        lambda: store.stats(namespace="nope"),
    ):
        with pytest.raises(NotFoundError, match="nope"):
            action()


@pytest.mark.parametrize(
    "options",
    [
        {"max_new_tokens": "5"},
        {"max_new_tokens": 2.5},
        {"max_new_tokens": None},
        {"temperature": "1"},
        {"seed": 1.5},
        {"sampling_top_k": "5"},
        {"top_p": "1"},
        {"repetition_penalty": "1"},
        {"top_k": "5"},
        {"top_k": 2.5},
        {"stop": 5},
        {"stop": [5]},
        {"documents": 5},
        {"documents": [5]},
        {"documents": [("rhine", ["one"])]},
    ],
    ids=str,
)
def test_wrong_types_are_usage_errors(store, options):
    with pytest.raises(UsageError):
        Engine(store).generate(QUESTION, **options)


def test_the_smallest_temperature_is_greedy(store):
    engine = Engine(store)
    greedy = engine.generate(QUESTION, documents=["rhine"], **SHORT)
    cold = engine.generate(QUESTION, documents=["rhine"], temperature=1e-310, seed=1, **SHORT)
    assert cold.token_ids == greedy.token_ids


def test_parts_of_a_document_can_be_asked(new_store):
    store = new_store(segment_tokens=32)
    text = "\n\n".join(f"Paragraph {i} is here." for i in range(8))
    store.ingest([Document("long", text)])
    keys = [p["packet_key"] for p in store.show("long")["packets"]]
    answer = Engine(store).generate(QUESTION, documents=[("long", [3, 1])], **SHORT)
    assert [p.packet_key for p in answer.documents[0].packets] == [keys[3], keys[1]]
    with pytest.raises(NotFoundError, match="segments"):
        Engine(store).generate(QUESTION, documents=[("long", [99])], **SHORT)
