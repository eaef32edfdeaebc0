"""The codec pack in a store: where writes of it were lost to power, a refusal, never other bits."""

import dataclasses
import os
from pathlib import Path

import pytest

from kvpacket_store import durable
from kvpacket_store.api.codec_packs import CodecPacks
from kvpacket_store.codec.linear.shapes import PackShape
from kvpacket_store.codec.linear.synthetic import make_pack
from kvpacket_store.errors import LevelUnavailableError

pytestmark = pytest.mark.fault

PACK = make_pack(PackShape(2, 1, 5, 1))


def states(whole):
    """Prefixes, and zeros from any place on, to any place: what was not synced."""
    for end in range(0, len(whole), 97):
        yield whole[:end]
        yield whole[:end].ljust(len(whole), b"\0")
    for start in range(0, len(whole), 64):
        yield whole[:start] + bytes(16) + whole[start + 16 :]


def test_lost_writes_are_refused(tmp_path):
    CodecPacks(tmp_path).keep(PACK)
    [file] = (tmp_path / "codec-packs").iterdir()
    whole = file.read_bytes()
    for state in states(whole):
        file.write_bytes(state)
        if state == whole:
            continue
        with pytest.raises(LevelUnavailableError):
            CodecPacks(tmp_path).find(PACK.digest)
        assert list(CodecPacks(tmp_path).kept()) == []
    CodecPacks(tmp_path).keep(PACK)
    assert CodecPacks(tmp_path).find(PACK.digest).digest == PACK.digest


def test_a_pack_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace

    def syncing(descriptor):
        events.append(("sync", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        fsync(descriptor)

    monkeypatch.setattr(durable.os, "fsync", syncing)
    monkeypatch.setattr(
        "pathlib.Path.replace",
        lambda self, target: (events.append(("name", target.name)), replace(self, target)),
    )
    CodecPacks(tmp_path).keep(PACK)
    (scratch, named, folder, parent) = events
    assert scratch[0] == "sync"
    assert scratch[1].endswith(".tmp")
    assert named == ("name", f"{PACK.digest}.kvc")
    assert [folder, parent] == [("sync", "codec-packs"), ("sync", tmp_path.name)]


def test_what_a_killed_write_left_is_no_pack(tmp_path):
    packs = CodecPacks(tmp_path)
    packs.keep(PACK)
    other = dataclasses.replace(PACK, weights="0" * 64)
    (packs.folder / f"{other.digest}.4711.tmp").write_bytes(other.to_bytes()[:50])
    assert [pack.digest for pack in CodecPacks(tmp_path).kept()] == [PACK.digest]
