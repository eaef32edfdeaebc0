"""No two different identities share an encoding."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpacket_store.packet import PacketIdentity, packet_key
from kvpacket_store.packet.identity import _encoded_fields
from kvpacket_store.types import KVDtype

pytestmark = pytest.mark.property

# few values a field, so that identities that differ in one place only are drawn often
DIGESTS = st.sampled_from([hashlib.sha256(name).hexdigest() for name in (b"a", b"b")])
IDENTITIES = st.builds(
    PacketIdentity,
    format_version=st.integers(1, 3),
    weights=DIGESTS,
    tokenizer=DIGESTS,
    config=DIGESTS,
    rope=DIGESTS,
    kv_dtype=st.sampled_from(KVDtype),
    adapter=DIGESTS | st.just("none"),
    recipe=st.sampled_from(["alone-1", "alone-11", "a", "alone-1s", "alone-1segment"]),
    role=st.sampled_from(["segment", "preamble"]),
    token_ids=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4).map(tuple),
)


@given(IDENTITIES, IDENTITIES)
def test_keys_are_equal_exactly_where_identities_are(one, other):
    assert (packet_key(one) == packet_key(other)) == (one == other)


@given(IDENTITIES)
def test_the_encoding_gives_every_field_back(identity):
    data = b"".join(_encoded_fields(identity))
    values = []
    while data:
        tag, length = data[0], int.from_bytes(data[1:9], "little")
        assert tag == len(values) + 1
        values.append(data[9 : 9 + length])
        data = data[9 + length :]
    assert len(values) == 10
    assert int.from_bytes(values[0], "little") == identity.format_version
    assert [value.decode() for value in values[1:9]] == [
        identity.weights,
        identity.tokenizer,
        identity.config,
        identity.rope,
        identity.kv_dtype,
        identity.adapter,
        identity.recipe,
        identity.role,
    ]
    ids = [int.from_bytes(values[9][i : i + 4], "little") for i in range(0, len(values[9]), 4)]
    assert tuple(ids) == identity.token_ids


@given(st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=6), st.data())
def test_moving_bytes_into_a_neighbouring_field_changes_the_key(token_ids, data):
    """A recipe that ends as the role begins, and the other way round."""
    digest = "0" * 64
    cut = data.draw(st.integers(1, 6))
    fields = (1, digest, digest, digest, digest, KVDtype.BF16, "none")
    plain = PacketIdentity(*fields, "alone-1", "segment", tuple(token_ids))
    moved = PacketIdentity(*fields, "alone-1" + "segment"[:cut], "segment", tuple(token_ids))
    shorter = PacketIdentity(*fields, "alone-1", "segment", tuple(token_ids[:-1]))
    assert len({packet_key(plain), packet_key(moved), packet_key(shorter)}) == 3
