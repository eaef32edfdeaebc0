"""The adapter in a store: where writes of it were lost to power, a refusal, never an answer."""

from types import SimpleNamespace

import numpy as np
import pytest

from kvpacket_store.adapters import Adapter
from kvpacket_store.api.adapter_choice import keep_adapter, kept_adapter
from kvpacket_store.errors import AdapterError, ModelMismatchError

pytestmark = pytest.mark.fault

HIDDEN = 16


def soft(seed):
    table = np.random.default_rng(seed).normal(0, 0.3, (50, HIDDEN))
    return Adapter.untrained(table, num_tokens=4)


def meta_of(adapter):
    """What a store's description says of it."""
    digests = (adapter.prefill_digest, adapter.correction_digest)
    return SimpleNamespace(adapter="soft", adapter_digest=digests[0], correction_digest=digests[1])


def states(whole):
    """Every prefix, and zeros from any place on, to any place: what was not synced."""
    for end in range(0, len(whole), 3):
        yield whole[:end]
        yield whole[:end].ljust(len(whole), b"\0")
    for start in range(0, len(whole), 16):
        yield whole[:start] + bytes(16) + whole[start + 16 :]


def test_lost_writes_are_refused(tmp_path):
    adapter = soft(0)
    keep_adapter(adapter, tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    refused = 0
    for state in states(whole):
        file.write_bytes(state)
        try:
            found = kept_adapter(tmp_path, meta_of(adapter), HIDDEN)
        except (AdapterError, ModelMismatchError):
            refused += 1
        else:  # what was lost were zeros, or was not the tensors: the name's metadata
            assert found.digest == adapter.digest
            assert np.array_equal(found.header, adapter.header)
            assert np.array_equal(found.trailer, adapter.trailer)
    assert refused > len(whole) // 2


def test_a_file_that_never_came_to_be_is_refused(tmp_path):
    with pytest.raises(AdapterError, match="not there"):
        kept_adapter(tmp_path, meta_of(soft(0)), HIDDEN)


def test_the_file_of_another_adapter_is_refused(tmp_path):
    keep_adapter(soft(1), tmp_path)
    with pytest.raises(ModelMismatchError, match="not the adapter"):
        kept_adapter(tmp_path, meta_of(soft(0)), HIDDEN)
