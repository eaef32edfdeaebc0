"""Whatever a namespace holds: what comes out of a bundle is what went in, and again the same."""

import dataclasses
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpacket_store.bundle import import_bundle, read_bundle, write_bundle
from kvpacket_store.store import PacketStore
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

pytestmark = pytest.mark.property

META = make_meta(fingerprint=dict.fromkeys(("weights", "tokenizer", "config", "rope"), "0" * 64))
RECORDS = [
    make_record(f"r{i}", size, enhancement_bytes=more)
    for i, (size, more) in enumerate([(1, None), (40, 3000), (3000, None), (140_000, 200_000)])
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda children: st.lists(children, max_size=3)
    | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)  # fmt: skip
any_text = st.text(st.characters(), min_size=1, max_size=30)


@st.composite
def writes(draw):
    document_id = draw(any_text)
    numbers = draw(st.lists(st.sampled_from(range(len(RECORDS))), max_size=4))
    write = make_write(document_id, [RECORDS[n] for n in numbers], embedding_dim=draw(st.just(3)))
    manifest = dataclasses.replace(
        write.manifest,
        metadata=draw(st.dictionaries(st.text(max_size=5), json_values, max_size=3)),
        text=(write.manifest.text or "") + draw(any_text),
    )
    has_embeddings = draw(st.booleans())
    return dataclasses.replace(
        write, manifest=manifest, embeddings=write.embeddings if has_embeddings else None
    )


def held(store):
    return [
        (
            manifest.to_json(),
            store.document_text("n", manifest.id),
            [store.read_packet("n", key)[1:] for key in manifest.packet_keys],
        )
        for manifest in store.list_documents("n")[0]
    ], list(store.iter_embeddings("n"))


@settings(max_examples=15, deadline=None)
@given(st.lists(writes(), max_size=5, unique_by=lambda write: write.manifest.id))
def test_there_and_back_again(documents):
    folder = Path(tempfile.mkdtemp())
    try:
        with (
            PacketStore.create(folder / "one", META) as one,
            PacketStore.create(folder / "two", META) as two,
        ):
            one.put_documents("n", documents)
            sent = write_bundle(one, folder / "x", namespace="n")
            with read_bundle(folder / "x") as bundle:
                first = import_bundle(two, bundle, namespace="n", check=lambda record: None)
                second = import_bundle(two, bundle, namespace="n", check=lambda record: None)
            write_bundle(two, folder / "y", namespace="n")
            assert (first.added, first.errors) == (len(documents), [])
            assert (second.unchanged, second.packets_added) == (len(documents), 0)
            assert first.packets_added == sent.packets
            assert first.missing_embeddings == sent.missing_embeddings
            assert held(one) == held(two)
            assert (folder / "x").read_bytes() == (folder / "y").read_bytes()
            assert two.check(deep=True) == []
    finally:
        shutil.rmtree(folder)
