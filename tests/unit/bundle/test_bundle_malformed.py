"""Members that are sealed as they should be, and hold what cannot be right."""

import json

import pytest

from kvpacket_store.store.synthetic import make_record

DOCUMENT = "documents/00000000.json"
PACKET = f"packets/{make_record('r0').packet_key}.json"


@pytest.mark.parametrize(("name", "spoil"), [
    (DOCUMENT, lambda d: d.pop("id")),
    (DOCUMENT, lambda d: d.update(more=1)),
    (DOCUMENT, lambda d: d.update(id="")),
    (DOCUMENT, lambda d: d.update(id="x" * 1001)),
    (DOCUMENT, lambda d: d.update(id=7)),
    (DOCUMENT, lambda d: d.update(content_hash=None)),
    (DOCUMENT, lambda d: d.update(metadata_hash="")),
    (DOCUMENT, lambda d: d.update(metadata=[])),
    (DOCUMENT, lambda d: d.update(segments={})),
    (DOCUMENT, lambda d: d["segments"].append([])),
    (DOCUMENT, lambda d: d["segments"].append("abcd")),
    (DOCUMENT, lambda d: d["segments"][0].__setitem__(0, "g" * 64)),
    (DOCUMENT, lambda d: d["segments"][0].__setitem__(0, 1)),
    (DOCUMENT, lambda d: d["segments"][0].__setitem__(1, True)),
    (DOCUMENT, lambda d: d["segments"][0].__setitem__(1, 9)),
    (DOCUMENT, lambda d: d["segments"][0].__setitem__(2, -1)),
    (DOCUMENT, lambda d: d["segments"][0].__setitem__(2, 101)),
    (DOCUMENT, lambda d: d["segments"][0].__setitem__(3, 201)),
    (DOCUMENT, lambda d: d["segments"][0].__setitem__(3, 1.0)),
    (PACKET, lambda p: p.pop("engine")),
    (PACKET, lambda p: p.update(stored_bytes=50)),
    (PACKET, lambda p: p.update(packet_key="0" * 64)),
    (PACKET, lambda p: p.update(token_ids=None)),
    (PACKET, lambda p: p["token_ids"].append(1)),
    (PACKET, lambda p: p["token_ids"].__setitem__(0, -1)),
    (PACKET, lambda p: p["token_ids"].__setitem__(0, 1 << 32)),
    (PACKET, lambda p: p["token_ids"].__setitem__(0, False)),
    (PACKET, lambda p: p.update(positions=-1)),
    (PACKET, lambda p: p.update(raw_bytes=1 << 60)),
    (PACKET, lambda p: p.update(kv_digest=1)),
], ids=map(str, range(30)))  # fmt: skip
def test_a_description_that_cannot_be_right(
    target, bundle_path, reseal, name, spoil, imported, counts
):
    def change(members):
        values = json.loads(members[name])
        spoil(values)
        members[name] = json.dumps(values).encode()

    report = imported(target, reseal(bundle_path, change))
    assert counts(report) == (2, 0, 0, 1)
    assert target.check(deep=True) == []


@pytest.mark.parametrize("text", [
    b"", b"[]", b"null", b"{", b"{} {}", b'{"id": 1, "id": 2}', b'{"a": NaN}', b'{"a": 1e999}',
    b'{"a": -Infinity}', b'{"a": "\xc3\xa9"}', b'{"a": ' + b"9" * 5000 + b"}", b'{"a": "\n"}',
    b'{"a":' + b"[" * 100_000, b"\xef\xbb\xbf{}",
])  # fmt: skip
def test_what_is_not_plain_json(target, bundle_path, reseal, text, imported, counts):
    def change(members):
        members[DOCUMENT] = text

    report = imported(target, reseal(bundle_path, change))
    assert counts(report) == (2, 0, 0, 1)
    assert DOCUMENT in report.errors[0].error


@pytest.mark.parametrize("length", [0, 1, 4, 15, 34, 8 * 33])
def test_embeddings_that_do_not_fit(target, bundle_path, reseal, length, imported, counts):
    def change(members):
        members["documents/00000000.f32"] = bytes(length)

    report = imported(target, reseal(bundle_path, change))
    assert counts(report) == ((3, 0, 0, 0) if length == 8 * 33 else (2, 0, 0, 1))


def test_a_text_that_is_not_utf8(target, bundle_path, reseal, imported):
    def change(members):
        members["documents/00000000.txt"] = b"\xff" * 200

    assert "UTF-8" in imported(target, reseal(bundle_path, change)).errors[0].error
