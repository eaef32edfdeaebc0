"""A store against a dictionary: whatever is done to both, they say the same."""

import dataclasses
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kvpacket_store.errors import NotFoundError
from kvpacket_store.store import PacketStore
from kvpacket_store.store.schema import CHUNK_BYTES
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

pytestmark = pytest.mark.property

SIZES = (1, 3000, 5000, CHUNK_BYTES, CHUNK_BYTES + 1, 300_000)
ONE_LAYER = {i: make_record(f"packet {i}", SIZES[i % len(SIZES)]) for i in range(9)}
TWO_LAYERS = {
    9 + i: make_record(f"packet {9 + i}", size, enhancement_bytes=more)
    for i, (size, more) in enumerate([(1, 1), (CHUNK_BYTES, 3000), (5000, CHUNK_BYTES + 1)])
}
RECORDS = ONE_LAYER | TWO_LAYERS
namespaces = st.sampled_from(["n", "m", "😀" * 200])
ids = st.sampled_from(["a", "a\x00", "b", "x" * 1000, "é"])
packets = st.lists(st.sampled_from(sorted(RECORDS)), max_size=6)


class StoreMachine(RuleBasedStateMachine):
    """``self.model``: namespace → id → (packet numbers, version); ``self.staged``: packets."""

    @initialize()
    def create(self):
        self.folder = tempfile.mkdtemp()
        path = Path(self.folder, "s.kvps")
        self.store = PacketStore.create(path, make_meta(), map_bytes=1 << 20)
        self.model: dict[str, dict[str, tuple[list[int], int]]] = {}
        self.staged: dict[str, set[int]] = {}
        self.shared: set[int] = set()
        self.version = 0

    def teardown(self):
        self.store.close()
        shutil.rmtree(self.folder)

    def held(self, namespace):
        """Numbers of the packets that the namespace must hold."""
        documents = self.model.get(namespace, {}).values()
        used = {number for numbers, _ in documents for number in numbers}
        return used | self.staged.get(namespace, set())

    def write(self, namespace, document_id, numbers):
        """A write that brings only the records that are not there."""
        self.version += 1
        write = make_write(document_id, [RECORDS[n] for n in numbers], version=self.version)
        held = {RECORDS[n].packet_key for n in self.held(namespace)}
        missing = {k: r for k, r in write.records.items() if k not in held}
        return dataclasses.replace(write, records=missing)

    def note(self, namespace, document_id, numbers):
        before = self.held(namespace)
        staged = self.staged.setdefault(namespace, set())
        staged -= set(numbers)
        self.model.setdefault(namespace, {})[document_id] = (numbers, self.version)
        assert self.held(namespace) <= before | set(numbers)

    @rule(namespace=namespaces, document_id=ids, numbers=packets)
    def put(self, namespace, document_id, numbers):
        write = self.write(namespace, document_id, numbers)
        self.store.put_document(namespace, write.manifest, write.records, write.embeddings)
        self.note(namespace, document_id, numbers)

    @rule(namespace=namespaces, batch=st.dictionaries(ids, packets, max_size=4))
    def put_batch(self, namespace, batch):
        writes = []
        for document_id, numbers in batch.items():
            self.version += 1
            records = [RECORDS[n] for n in numbers]
            writes.append((make_write(document_id, records, version=self.version), self.version))
        self.store.put_documents(namespace, [write for write, _ in writes])
        for (document_id, numbers), (_, version) in zip(batch.items(), writes, strict=True):
            self.version = version
            self.note(namespace, document_id, numbers)

    @rule(namespace=namespaces, document_id=ids)
    def delete(self, namespace, document_id):
        known = self.model.get(namespace, {})
        if document_id in known:
            self.store.delete_document(namespace, document_id)
            del known[document_id]
        else:
            with pytest.raises(NotFoundError):
                self.store.delete_document(namespace, document_id)

    @rule(namespace=namespaces, document_id=ids)
    def change_metadata(self, namespace, document_id):
        known = self.model.get(namespace, {})
        if document_id in known:
            self.version += 1
            self.store.update_metadata(namespace, document_id, {"version": self.version}, "h")
            known[document_id] = (known[document_id][0], self.version)

    @rule(namespace=namespaces, numbers=packets)
    def stage(self, namespace, numbers):
        used = self.held(namespace) - self.staged.get(namespace, set())
        records = {RECORDS[n].packet_key: RECORDS[n] for n in numbers}
        self.store.stage_packets(namespace, records)
        self.staged.setdefault(namespace, set()).update(set(numbers) - used)

    @rule()
    def delete_staged(self):
        num_staged = sum(map(len, self.staged.values()))
        self.staged.clear()
        assert self.store.gc(grace_s=0).deleted_packets == num_staged

    @rule(namespace=namespaces, number=st.sampled_from(sorted(RECORDS)))
    def replace(self, namespace, number):
        record = RECORDS[number]
        used = self.held(namespace) - self.staged.get(namespace, set())
        if number in used:
            self.store.replace_record(namespace, record)
        else:
            with pytest.raises(NotFoundError):
                self.store.replace_record(namespace, record)

    @rule(number=st.sampled_from(sorted(ONE_LAYER)))
    def share(self, number):
        self.store.put_shared(RECORDS[number])
        self.shared.add(number)

    @rule()
    def reopen(self):
        self.store.close()
        self.store = PacketStore.open(self.store.path, map_bytes=1 << 20)

    @invariant()
    def documents_agree(self):
        for namespace, documents in self.model.items():
            listed, following = self.store.list_documents(namespace, 100)
            assert following is None
            found = {}
            for manifest in listed:
                keys = [segment.packet_key for segment in manifest.segments]
                found[manifest.id] = (keys, manifest.metadata["version"])
            assert found == {
                document_id: ([RECORDS[n].packet_key for n in numbers], version)
                for document_id, (numbers, version) in documents.items()
            }
            rows = {(row[0], row[2]) for row in self.store.iter_embeddings(namespace)}
            assert rows == {(d, key) for d, (keys, _) in found.items() for key in keys}
        assert set(self.store.namespaces()) == {n for n, d in self.model.items() if d}

    @invariant()
    def packets_agree(self):
        for namespace in {*self.model, *self.staged}:
            held = {RECORDS[n].packet_key: RECORDS[n] for n in self.held(namespace)}
            for record in RECORDS.values():
                is_held = record.packet_key in held
                assert self.store.has_packet(namespace, record.packet_key) == is_held
                if is_held:
                    read = self.store.read_packet(namespace, record.packet_key)
                    assert (read.record, read.enhancement) == (record.record, record.enhancement)
            assert {m.packet_key for m in self.store.iter_packets(namespace)} == set(held)
            sizes = self.store.stats(namespace)
            assert sizes.packets == len(held)
            assert sizes.raw_bytes == sum(record.raw_bytes for record in held.values())
            assert sizes.live_bytes >= sum(record.stored_bytes for record in held.values())
        for number in self.shared:
            assert self.store.read_shared(RECORDS[number].packet_key) == RECORDS[number].record

    @invariant()
    def counters_equal_a_full_scan(self):
        assert self.store.check(deep=True) == []


StoreMachine.TestCase.settings = settings(max_examples=12, stateful_step_count=20, deadline=None)
TestStoreMachine = StoreMachine.TestCase
