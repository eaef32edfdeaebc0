"""The record manager by itself, as LangChain's own are tested."""

import pytest
from langchain_core.documents import Document as LCDocument

from kvpacket_store.integrations.langchain import KVPacketIndex, KVPacketRecordManager

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning"),
]


@pytest.fixture
def records(empty_engine):
    KVPacketIndex(engine=empty_engine).upsert([LCDocument(k, id=k) for k in "abc"])
    made = KVPacketRecordManager(empty_engine.store)
    made.create_schema()
    return made


def at(records, monkeypatch, time_s):
    monkeypatch.setattr(type(records), "get_time", lambda _: time_s)


def test_a_record_is_there_with_its_document(records, empty_engine):
    assert records.exists(["a", "b"]) == [False, False]
    records.update(["a", "nobody"])
    assert records.exists(["a", "b", "nobody"]) == [True, False, False]
    empty_engine.store.delete("a")
    assert records.exists(["a"]) == [False]
    assert records.list_keys() == ["a", "nobody"]
    records.delete_keys(["nobody", "never"])
    assert records.list_keys() == ["a"]
    records.delete_keys([])
    records.update([])


def test_keys_are_listed_by_time_group_and_number(records, monkeypatch):
    for time_s, key, group in ((10.0, "a", "g"), (20.0, "b", "h"), (30.0, "c", None)):
        at(records, monkeypatch, time_s)
        records.update([key], group_ids=[group])
    assert records.list_keys(before=20.0) == ["a"]
    assert records.list_keys(after=20.0) == ["c"]
    assert records.list_keys(before=30.0, after=10.0) == ["b"]
    assert records.list_keys(group_ids=["g", "h"]) == ["a", "b"]
    assert records.list_keys(limit=2) == ["a", "b"]
    assert records.list_keys(group_ids=[]) == []
    at(records, monkeypatch, 40.0)
    records.update(["a"])  # refreshed, as index() does it: the group stays
    assert records.list_keys(after=35.0, group_ids=["g"]) == ["a"]


def test_what_does_not_go_together_is_refused(records):
    with pytest.raises(ValueError, match="2 keys, but 1 group"):
        records.update(["a", "b"], group_ids=["g"])
    with pytest.raises(ValueError, match="future"):
        records.update(["a"], time_at_least=records.get_time() + 60)
    records.update(["a"], time_at_least=records.get_time() - 1)


async def test_on_a_loop_it_does_the_same(records):
    await records.acreate_schema()
    before = await records.aget_time()
    await records.aupdate(["a", "b"], group_ids=["g", "h"], time_at_least=before)
    assert await records.aexists(["a", "c"]) == [True, False]
    assert await records.alist_keys(group_ids=["h"]) == ["b"]
    await records.adelete_keys(["a"])
    assert await records.alist_keys(after=before - 1) == ["b"]
