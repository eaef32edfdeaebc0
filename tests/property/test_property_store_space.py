"""The law of the accounts: a capped store against a dictionary, evicted, pinned and swept."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kvpacket_store.errors import CapReachedError, NotFoundError
from kvpacket_store.store import PacketStore, space_shelf, usage, writer
from kvpacket_store.store.schema import Table
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

pytestmark = pytest.mark.property

CAP_BYTES = 1 << 21
SIZES = (3000, 131_000, 131_057, 300_000)
RECORDS = {i: make_record(f"packet {i}", SIZES[i % len(SIZES)]) for i in range(16)}
namespaces = st.sampled_from(["n", "m"])
ids = st.sampled_from(["a", "b", "c", "d"])
packets = st.lists(st.sampled_from(sorted(RECORDS)), min_size=1, max_size=5, unique=True)


class SpaceMachine(RuleBasedStateMachine):
    """``self.documents``: (namespace, id) → packets; ``self.used``: packet → last use, ms."""

    @initialize()
    def create(self):
        self.now_ms = 1_000_000
        self.patch = pytest.MonkeyPatch()
        for module in (usage, writer, space_shelf):
            self.patch.setattr(module, "now_ms", lambda: self.now_ms)
        self.folder = tempfile.mkdtemp()
        path = Path(self.folder, "s.kvps")
        meta = make_meta(max_bytes=CAP_BYTES, packet_ttl_s=1000)
        self.store = PacketStore.create(path, meta, map_bytes=1 << 20)
        self.documents: dict[tuple[str, str], list[int]] = {}
        self.pinned: set[tuple[str, str]] = set()
        self.staged: set[tuple[str, int]] = set()
        self.used: dict[tuple[str, int], int] = {}

    def teardown(self):
        self.store.close()
        self.patch.undo()
        shutil.rmtree(self.folder)

    # --- what the model says

    def known(self):
        """Packets that the store knows of, with their records or without."""
        referred = {(n, p) for (n, _), numbers in self.documents.items() for p in numbers}
        return referred | self.staged

    def kept_for_ever(self):
        return {(n, p) for n, d in self.pinned for p in self.documents[n, d]}

    def held(self):
        """Packets whose records the store has."""
        return {(n, p) for n, p in self.known() if self.has(n, p)}

    def has(self, namespace, number):
        return self.store.has_packet(namespace, RECORDS[number].packet_key)

    def is_evicted(self, namespace, number):
        """Not so where a new version of the document has let the packet go."""
        try:
            return self.store.get_manifest(namespace, RECORDS[number].packet_key).is_evicted
        except NotFoundError:
            return False

    def write(self, namespace, numbers, action, keep_since_ms=None):
        """Do something that may evict; see that it evicts in order. Return whether it was done."""
        self.now_ms += 1000
        before, pinned = self.held(), self.kept_for_ever()
        try:
            action()
            is_done = True
        except CapReachedError:
            is_done = False
        named = {(namespace, n) for n in numbers}
        stayed = {p for p in before if self.has(*p)}
        evicted = {p for p in before - stayed if self.is_evicted(*p)}
        assert not evicted & pinned
        for packet in evicted:
            assert keep_since_ms is None or self.used[packet] < keep_since_ms
        if evicted:
            newest = max(self.used[packet] for packet in evicted)
            spared = {p for p in stayed if p[1] in numbers} | pinned
            older = {p for p in stayed - spared if self.used[p] < newest}
            assert not older, "a packet stayed that was used before one that was evicted"
        if is_done:
            self.used.update(dict.fromkeys(named, self.now_ms))
        return is_done

    def drop_unknown(self):
        for packet in set(self.used) - self.known():
            del self.used[packet]

    # --- what is done to both

    @rule(namespace=namespaces, document_id=ids, numbers=packets, keep=st.booleans())
    def put(self, namespace, document_id, numbers, keep):
        write = make_write(document_id, [RECORDS[n] for n in numbers])
        keep_since_ms = self.now_ms - 5000 if keep else None

        def action():
            self.store.put_documents(namespace, [write], keep_since_ms=keep_since_ms)

        if self.write(namespace, numbers, action, keep_since_ms):
            self.documents[namespace, document_id] = numbers
            self.staged -= {(namespace, n) for n in numbers}
            assert all(self.has(namespace, n) for n in numbers)
            self.drop_unknown()

    @rule(namespace=namespaces, numbers=packets)
    def stage(self, namespace, numbers):
        records = {RECORDS[n].packet_key: RECORDS[n] for n in numbers}
        referred = self.known() - self.staged
        if self.write(namespace, numbers, lambda: self.store.stage_packets(namespace, records)):
            self.staged |= {(namespace, n) for n in numbers} - referred

    @rule(namespace=namespaces, number=st.sampled_from(sorted(RECORDS)))
    def replace(self, namespace, number):
        def action():
            self.store.replace_record(namespace, RECORDS[number])

        if (namespace, number) in self.known() - self.staged:
            self.write(namespace, [number], action)
        else:
            with pytest.raises(NotFoundError):
                action()

    @rule(namespace=namespaces, numbers=packets)
    def touch(self, namespace, numbers):
        self.now_ms += 1000
        self.store.touch(namespace, [RECORDS[n].packet_key for n in numbers])
        for packet in {(namespace, n) for n in numbers} & self.held():
            self.used[packet] = self.now_ms

    @rule(namespace=namespaces, document_id=ids)
    def delete(self, namespace, document_id):
        if self.documents.pop((namespace, document_id), None) is not None:
            self.store.delete_document(namespace, document_id)
            self.pinned.discard((namespace, document_id))
            self.drop_unknown()

    @rule(namespace=namespaces, document_id=ids, is_pinned=st.booleans())
    def pin(self, namespace, document_id, is_pinned):
        if (namespace, document_id) not in self.documents:
            return
        change = self.store.pin_document if is_pinned else self.store.unpin_document

        if self.write(namespace, [], lambda: change(namespace, document_id)):
            if is_pinned:
                self.pinned.add((namespace, document_id))
            else:
                self.pinned.discard((namespace, document_id))

    @rule(passed_s=st.sampled_from([0, 500, 5000]))
    def collect_garbage(self, passed_s):
        self.now_ms += 1000 * passed_s
        before, pinned, live_bytes = (
            self.held(),
            self.kept_for_ever(),
            self.store.stats().live_bytes,
        )
        report = self.store.gc(grace_s=1000)
        old = {p for p in before if self.used[p] < self.now_ms - 1_000_000}
        evicted_before = self.staged - before
        assert report.deleted_packets == len(old & self.staged) + len(evicted_before)
        assert report.evicted_packets == len(old - self.staged - pinned)
        assert report.deleted_rows == 0
        assert report.before_bytes == live_bytes
        assert report.after_bytes == self.store.stats().live_bytes
        self.staged -= old | evicted_before
        assert self.held() == before - (old - pinned)
        self.drop_unknown()

    @rule()
    def compact(self):
        before = self.held()
        self.store.compact()
        assert self.held() == before

    @rule()
    def reopen(self):
        self.store.close()
        self.store = PacketStore.open(self.store.path, map_bytes=1 << 20)

    # --- what always holds

    @invariant()
    def the_cap_holds(self):
        assert self.store.stats().file_bytes <= CAP_BYTES

    @invariant()
    def counters_equal_the_sum_of_what_is_live(self):
        held = self.held()
        for namespace in ("n", "m"):
            sizes = self.store.stats(namespace)
            records = [RECORDS[number] for n, number in held if n == namespace]
            assert sizes.documents == sum(n == namespace for n, _ in self.documents)
            assert sizes.packets == len(records)
            assert sizes.evicted_packets == sum(n == namespace for n, _ in self.known() - held)
            assert sizes.tokens == sum(len(record.token_ids) for record in records)
            assert sizes.raw_bytes == sum(record.raw_bytes for record in records)
        with self.store._environment.read() as tx:
            rows = [*tx.scan_sizes(Table.MANIFESTS), *tx.scan_sizes(Table.DOCUMENTS)]
            live_bytes = sum(size for _, size in [*rows, *tx.scan_sizes(Table.CHUNKS)])
        assert self.store.stats().live_bytes == live_bytes
        assert self.store.check(deep=True) == []

    @invariant()
    def what_is_held_reads_back_and_the_rest_is_known(self):
        for namespace, number in self.known():
            record = RECORDS[number]
            manifest = self.store.get_manifest(namespace, record.packet_key)
            assert manifest.token_ids == record.token_ids
            if not manifest.is_evicted:
                assert self.store.read_record(namespace, record.packet_key) == record.record
        listed = {
            (document.namespace, document.id): document.is_pinned
            for document in self.store.list_documents(None)[0]
        }
        assert listed == {key: key in self.pinned for key in self.documents}


SpaceMachine.TestCase.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
TestSpaceMachine = SpaceMachine.TestCase
