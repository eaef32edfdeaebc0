"""Verify, repair, space and bundles as commands, on a store of the real model."""

import shutil

import pytest

from kvpacket_store.store.schema import Table

pytestmark = pytest.mark.e2e


@pytest.fixture
def store(smollm2_store, tmp_path):
    """A copy that no other process has open."""
    return shutil.copytree(smollm2_store.path, tmp_path / "copy.kvps")


def spoil_a_chunk(txn, tables):
    with txn.cursor(db=tables[Table.CHUNKS]) as cursor:
        assert cursor.last()
        key, value = bytes(cursor.key()), bytearray(cursor.value())
    value[100] ^= 1
    txn.put(key, bytes(value), db=tables[Table.CHUNKS])


def test_damage_is_named_by_exit_code_4_and_repaired(kvps, kvps_here, store, behind_its_back):
    sound = kvps_here.json("verify", store, "--deep")
    assert sound["checked"] == kvps_here.json("stats", store)["packets"] >= 10
    assert (sound["damaged"], sound["repaired"]) == ([], 0)
    behind_its_back(store, spoil_a_chunk)
    assert kvps_here.json("verify", store)["damaged"] == []  # bytes are not read
    code, out, err = kvps("verify", store, "--deep")
    assert code == 4
    assert "does not match its checksum" in err
    assert "1 damaged, 0 repaired" in out
    repaired = kvps_here.json("verify", store, "--deep", "--repair")
    [found] = repaired["damaged"]
    assert len(found["packet_key"]) == 64
    assert len(found["document_ids"]) == 1
    assert repaired["repaired"] == 1
    again = kvps_here.json("verify", store, "--deep", "--recompute", "1")
    assert (again["damaged"], again["recomputed"]) == ([], 1)


def test_space_is_given_back(kvps, kvps_here, store, smollm2_store):
    ids = [d["id"] for d in kvps_here.json("list", store)["documents"]]
    held = kvps_here.json("stats", store)["packets"]
    kvps_here.json("delete", store, *ids[:8])
    assert kvps_here.json("pin", store, ids[9]) == {"pinned": [ids[9]], "absent": []}
    swept = kvps_here.json("gc", store)
    assert swept["before_bytes"] == swept["after_bytes"]
    compacted = kvps_here.json("compact", store)
    assert compacted["after_bytes"] < 0.5 * compacted["before_bytes"]
    assert kvps_here.json("verify", store, "--deep")["checked"] == held - 8
    code, _, err = kvps("compact", smollm2_store.path)  # this process has it open
    assert code == 3
    assert "another process" in err
    assert kvps_here("pin", store, "nowhere")[0] == 1


def test_a_bundle_travels(kvps_here, store, smollm2_store, tmp_path):
    bundle, ids = tmp_path / "two.kvpb", [d.id for d in smollm2_store.list().documents[:2]]
    assert kvps_here.json("export", store, bundle, *ids)["packets"] == 2
    assert kvps_here("export", store, bundle)[0] == 2  # it is there already
    taken = kvps_here.json("import", store, bundle, "--namespace", "mine")
    assert (taken["added"], taken["packets_added"]) == (2, 2)
    assert kvps_here.json("list", store, "--namespace", "mine")["documents"][0]["id"] == ids[0]
    bundle.write_bytes(bundle.read_bytes()[:-100])
    code, _, err = kvps_here("import", store, bundle, "--namespace", "mine")
    assert code in (2, 4)
    assert "bundle" in err
