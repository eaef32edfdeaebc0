"""Keys once given stay: a store of an earlier release must not turn into misses unnoticed."""

import hashlib

import numpy as np
import pytest

from kvpacket_store.packet import PacketIdentity, kv_digest, packet_key
from kvpacket_store.types import KVDtype

pytestmark = pytest.mark.golden


def field(tag, value):
    return bytes([tag]) + len(value).to_bytes(8, "little") + value


def test_packet_key_of_a_segment():
    digests = [hashlib.sha256(name.encode()).hexdigest() for name in "wtcra"]
    weights, tokenizer, config, rope, adapter = digests
    identity = PacketIdentity(
        1,
        weights,
        tokenizer,
        config,
        rope,
        KVDtype.BF16,
        adapter,
        "alone-1",
        "segment",
        (1, 70_000),
    )
    spelled_out = (
        b"kvpacket-store packet key 1\n"
        + field(1, b"\1\0\0\0")
        + b"".join(field(2 + index, digest.encode()) for index, digest in enumerate(digests[:4]))
        + field(6, b"bf16")
        + field(7, adapter.encode())
        + field(8, b"alone-1")
        + field(9, b"segment")
        + field(10, b"\1\0\0\0\x70\x11\1\0")
    )
    assert packet_key(identity) == hashlib.sha256(spelled_out).hexdigest()
    golden = "d708b77629567704f4c8a55a54746a227515664e2f5f106a5f55ffeb4b5a6c66"
    assert packet_key(identity) == golden


def test_packet_key_of_a_header():
    digest = "0123456789abcdef" * 4
    identity = PacketIdentity(
        1, digest, digest, digest, digest, KVDtype.FP8_E5M2, digest, "alone-1", "header", ()
    )
    assert (
        packet_key(identity) == "06d1834948cced818057acd2062fba874124cf998adb5fd6d3374024ad4a04bf"
    )


def test_kv_digest():
    k = np.arange(24, dtype=np.uint16).reshape(1, 2, 3, 4)
    v = k[..., ::-1]
    sizes = b"".join(size.to_bytes(8, "little") for size in k.shape)
    spelled_out = b"kvpacket-store kv digest 1\n" + b"".join(
        b"\2" + sizes + array.astype("<u2").tobytes() for array in (k, v)
    )
    assert kv_digest(k, v) == hashlib.sha256(spelled_out).hexdigest()
    assert kv_digest(k, v) == "496a29d16d5a1f46bd5a5644329a0b0c52a924aeba211064802467098d8f2100"
