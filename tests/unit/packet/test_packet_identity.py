import dataclasses
import hashlib

import numpy as np
import pytest

from kvpacket_store.errors import UsageError
from kvpacket_store.packet import NO_ADAPTER, PacketIdentity, packet_key
from kvpacket_store.types import KVDtype


def digest(name):
    return hashlib.sha256(name.encode()).hexdigest()


FIELDS = {
    "format_version": 1,
    "weights": digest("weights"),
    "tokenizer": digest("tokenizer"),
    "config": digest("config"),
    "rope": digest("rope"),
    "kv_dtype": KVDtype.BF16,
    "adapter": NO_ADAPTER,
    "recipe": "alone-1",
    "role": "segment",
    "token_ids": (5, 6, 7),
}
OTHER = {
    "format_version": 2,
    "weights": digest("other"),
    "tokenizer": digest("other"),
    "config": digest("other"),
    "rope": digest("other"),
    "kv_dtype": KVDtype.FP16,
    "adapter": digest("other"),
    "recipe": "alone-2",
    "role": "preamble",
    "token_ids": (5, 6, 8),
}


def test_other_covers_every_field():
    names = [field.name for field in dataclasses.fields(PacketIdentity)]
    assert names == list(FIELDS) == list(OTHER)


@pytest.mark.parametrize("name", FIELDS)
def test_changing_one_field_changes_the_key(name):
    changed = PacketIdentity(**FIELDS | {name: OTHER[name]})
    assert packet_key(changed) != packet_key(PacketIdentity(**FIELDS))


def test_equal_fields_give_equal_keys():
    as_given = PacketIdentity(**FIELDS)
    coerced = PacketIdentity(**FIELDS | {"kv_dtype": "bf16", "token_ids": np.array([5, 6, 7])})
    assert as_given == coerced
    assert hash(as_given) == hash(coerced)
    assert packet_key(as_given) == packet_key(coerced)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format_version", 0),
        ("format_version", 1 << 32),
        ("format_version", None),
        ("format_version", True),
        ("weights", ""),
        ("weights", None),
        ("weights", "unknown"),
        ("tokenizer", digest("x").upper()),
        ("config", digest("x") + "\n"),
        ("config", digest("x")[:-1]),
        ("rope", b"0" * 64),
        ("kv_dtype", "bfloat16"),
        ("kv_dtype", None),
        ("adapter", ""),
        ("adapter", None),
        ("adapter", "no adapter"),
        ("recipe", ""),
        ("recipe", "Alone 1"),
        ("recipe", None),
        ("role", ""),
        ("role", "trailer"),
        ("role", None),
        ("token_ids", ()),
        ("token_ids", None),
        ("token_ids", (1.5,)),
        ("token_ids", ("1",)),
        ("token_ids", (-1,)),
        ("token_ids", (1 << 32,)),
    ],
)
def test_empty_or_unknown_fields_are_refused(name, value):
    with pytest.raises(UsageError, match="packet identity"):
        PacketIdentity(**FIELDS | {name: value})


def test_a_header_is_its_adapter_s_alone():
    header = FIELDS | {"role": "header", "adapter": digest("adapter"), "token_ids": ()}
    assert packet_key(PacketIdentity(**header)) != packet_key(PacketIdentity(**FIELDS))
    for wrong in ({"token_ids": (1,)}, {"adapter": NO_ADAPTER}):
        with pytest.raises(UsageError, match="header"):
            PacketIdentity(**header | wrong)


def test_an_identity_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PacketIdentity(**FIELDS).role = "header"
