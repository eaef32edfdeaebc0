"""What every store of packets keeps, whatever holds its bytes. Backends subclass the contract."""

import dataclasses

import pytest

from kvpacket_store.errors import DocumentError, NotFoundError
from kvpacket_store.store import PacketStore
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

pytestmark = pytest.mark.conformance

A, B, C = make_record("a", 1), make_record("b", 9000), make_record("c", 400_000)


class StoreContract:
    """Subclass it as ``Test…`` and say how a store is made and opened again."""

    def create(self, path):
        raise NotImplementedError

    def reopen(self, store):
        raise NotImplementedError

    @pytest.fixture
    def backend(self, tmp_path):
        store = self.create(tmp_path / "s.kvps")
        yield store
        store.close()

    def test_bytes_in_are_bytes_out(self, backend):
        backend.put_documents("n", [make_write("d", [A, B, C])])
        for record in (A, B, C):
            assert backend.read_record("n", record.packet_key, record.token_ids) == record.record

    def test_everything_is_there_after_opening_again(self, backend):
        backend.put_documents("n", [make_write("d", [A, C]), make_write("e", [B])])
        backend.put_shared(A)
        before = (backend.stats("n"), backend.list_documents("n"), backend.generation("n"))
        store = self.reopen(backend)
        try:
            assert (store.stats("n"), store.list_documents("n"), store.generation("n")) == before
            assert store.read_record("n", C.packet_key) == C.record
            assert store.read_shared(A.packet_key) == A.record
            assert store.check(deep=True) == []
        finally:
            store.close()

    def test_there_is_the_same_as_can_be_read(self, backend):
        backend.put_documents("n", [make_write("d", [A, B])])
        backend.delete_document("n", "d")
        backend.put_documents("n", [make_write("e", [B])])
        for record, tokens in ((A, None), (B, None), (B, B.token_ids), (B, (0,)), (C, None)):
            is_there = backend.has_packet("n", record.packet_key, tokens)
            try:
                backend.read_record("n", record.packet_key, tokens)
                was_read = True
            except NotFoundError:
                was_read = False
            assert is_there == was_read

    def test_namespaces_share_nothing(self, backend):
        backend.put_documents("n", [make_write("d", [A])])
        backend.put_documents("m", [make_write("d", [A])])
        backend.delete_document("n", "d")
        assert not backend.has_packet("n", A.packet_key)
        assert backend.read_record("m", A.packet_key) == A.record
        assert backend.namespaces() == ["m"]

    def test_nothing_is_seen_of_a_failed_write(self, backend):
        bare = dataclasses.replace(make_write("e", [B]), records={})
        with pytest.raises(DocumentError):
            backend.put_documents("n", [make_write("d", [A]), bare])
        assert backend.count() == 0
        assert not backend.has_packet("n", A.packet_key)

    def test_references_keep_packets_alive(self, backend):
        backend.put_documents("n", [make_write("d", [A, B]), make_write("e", [B])])
        backend.put_documents("n", [make_write("d", [C])])
        found = [backend.has_packet("n", record.packet_key) for record in (A, B, C)]
        assert found == [False, True, True]

    def test_sizes_count_what_is_there(self, backend):
        backend.put_documents("n", [make_write("d", [A, B]), make_write("e", [B])])
        sizes = backend.stats("n")
        assert (sizes.documents, sizes.packets, sizes.tokens) == (2, 2, 16)
        assert sizes.raw_bytes == A.raw_bytes + B.raw_bytes
        assert sizes.live_bytes > len(A.record) + len(B.record)
        assert sizes.file_bytes >= sizes.live_bytes
        manifests = list(backend.iter_packets("n"))
        assert sum(m.stored_bytes for m in manifests) == len(A.record) + len(B.record)


class TestLMDBStore(StoreContract):
    def create(self, path):
        return PacketStore.create(path, make_meta(), map_bytes=1 << 20)

    def reopen(self, store):
        store.close()
        return PacketStore.open(store.path)
