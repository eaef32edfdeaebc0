"""Every byte of a bundle is the one that was written, or the bundle is refused."""

import os

import pytest

from kvpacket_store.bundle import read_bundle, write_bundle
from kvpacket_store.bundle.members import packet_record
from kvpacket_store.errors import BundleError, KVPacketError, NotFoundError, UsageError
from kvpacket_store.store.synthetic import make_record, make_write


def contents(path):
    """All that a bundle says, in plain values."""
    with read_bundle(path) as bundle:
        documents = [
            (manifest, manifest.text, dict(packets), embeddings)
            for manifest, packets, embeddings in bundle.documents()
        ]
        records = [packet.record for _, _, packets, _ in documents for packet in packets.values()]
        return bundle.identity, documents, records


def spoil_each_byte(path, bits):
    """Return how many spoilt bundles were refused; the others must say what the true one does."""
    whole, true = path.read_bytes(), contents(path)
    refused = 0
    with path.open("r+b", buffering=0) as file:
        for at in range(len(whole)):
            for bit in bits(at):
                os.pwrite(file.fileno(), bytes([whole[at] ^ 1 << bit]), at)
                try:
                    assert contents(path) == true, at
                except KVPacketError:
                    refused += 1
            os.pwrite(file.fileno(), whole[at : at + 1], at)
    return refused, len(whole)


def test_a_flipped_bit_in_any_byte_is_refused(small_bundle):
    refused, num_bytes = spoil_each_byte(small_bundle, lambda at: [at % 8])
    assert refused == num_bytes


@pytest.mark.slow
def test_any_flipped_bit_is_refused(small_bundle):
    refused, num_bytes = spoil_each_byte(small_bundle, lambda at: range(8))
    assert refused == 8 * num_bytes


def test_a_bundle_that_is_cut_anywhere_is_refused(small_bundle):
    for length in reversed(range(small_bundle.stat().st_size)):
        os.truncate(small_bundle, length)
        with pytest.raises(UsageError if length < 41 else BundleError):
            read_bundle(small_bundle)


@pytest.mark.parametrize("junk", [b"\n", b"PK\x05\x06" + bytes(18), b"x" * 100_000])
def test_bytes_after_the_end_or_before_the_start(small_bundle, junk):
    whole = small_bundle.read_bytes()
    small_bundle.write_bytes(whole + junk)
    with pytest.raises(BundleError, match="does not end as a bundle"):
        read_bundle(small_bundle)
    small_bundle.write_bytes(junk + whole)
    with pytest.raises(UsageError, match="no bundle"):
        read_bundle(small_bundle)


def test_a_file_that_shrinks_while_it_is_read(new_packet_store, tmp_path):
    store, path = new_packet_store("long.kvps"), tmp_path / "long.kvpb"
    store.put_documents("n", [make_write("d", [make_record("r", 100_000)])])
    write_bundle(store, path, namespace="n")
    with read_bundle(path) as bundle:
        path.write_bytes(path.read_bytes()[:50_000])
        with pytest.raises(BundleError, match="damaged"):
            bundle.members.read(packet_record(make_record("r").packet_key))


def test_what_is_no_file(tmp_path):
    with pytest.raises(NotFoundError):
        read_bundle(tmp_path / "nothing")
    for path in (tmp_path, "/dev/zero", "a\x00b"):
        with pytest.raises(UsageError):
            read_bundle(path)
