"""The file of keys: read with care, written whole, and never with a key in it."""

from __future__ import annotations

import hashlib
import stat
import threading

import pytest
from kvpacket_store._server import add_key, read_keys
from kvpacket_store._server.callers import Role
from kvpacket_store._server.key_file import warn_of_other_readers

from kvpacket_store.errors import UsageError

DIGESTS = [hashlib.sha256(f"key {i}".encode()).hexdigest() for i in range(4)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "keys"


def test_a_key_says_who_may_do_what_with_whose_documents(path):
    path.write_text(
        f"# name role namespace sha256\n\nann read default {DIGESTS[0]}\n"
        f"  \t\nbob\twrite  späte/böse {DIGESTS[1].upper()}  \r\n"
        f"# {DIGESTS[3]}\nroot admin a {DIGESTS[2]}"
    )
    keys = read_keys(path)
    ann, bob, root = (keys.caller_of(f"key {i}".encode()) for i in range(3))
    assert (ann.name, ann.role, ann.namespace) == ("ann", Role.READ, "default")
    assert (bob.name, bob.role, bob.namespace) == ("bob", Role.WRITE, "späte/böse")
    assert (root.name, root.role, root.namespace) == ("root", Role.ADMIN, "a")
    for other in (b"key 3", b"", b"KEY 0", b"key 0 ", DIGESTS[0].encode()):
        assert keys.caller_of(other) is None


def test_all_keys_are_compared_whoever_asks(path, monkeypatch):
    path.write_text("".join(f"k{i} read a {digest}\n" for i, digest in enumerate(DIGESTS)))
    keys, compared = read_keys(path), []
    monkeypatch.setattr(
        "kvpacket_store._server.keys.hmac.compare_digest",
        lambda one, other: compared.append(one) or one == other,
    )
    for key in (b"key 0", b"key 3", b"none"):
        keys.caller_of(key)
        assert [digest.hex() for digest in compared] == DIGESTS
        compared.clear()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ann read default", "3 fields"),
        (f"ann read my documents {DIGESTS[0]}", "5 fields"),
        (f"ann owner default {DIGESTS[0]}", "read, write or admin"),
        (f"ann READ default {DIGESTS[0]}", "read, write or admin"),
        (f"a/nn read default {DIGESTS[0]}", "the name is"),
        (f"{'a' * 65} read default {DIGESTS[0]}", "the name is"),
        (f"ann read {'n' * 201} {DIGESTS[0]}", "200 characters"),
        (f"ann read default {DIGESTS[0][:-1]}", "64 hexadecimal"),
        ("ann read default kvps_SECRET", "64 hexadecimal"),
        (f"zoe read default {DIGESTS[0]}", "taken"),
        (f"ann read default {DIGESTS[3]}", "that of an earlier line"),
    ],
)
def test_a_line_that_is_none_is_told_by_its_number(path, line, told):
    path.write_text(f"# keys\nzoe read default {DIGESTS[3]}\n\n{line}\n")
    with pytest.raises(UsageError, match=told) as caught:
        read_keys(path)
    assert f"{path}, line 4" in str(caught.value)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"# none yet\n", b"\xff\xfe", None])
def test_a_file_without_keys_is_refused(path, content):
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=str(path)):
        read_keys(path)


def test_a_new_key_is_told_once_and_only_its_digest_is_kept(path):
    first = add_key(path, "ann", "read", "default")
    path.write_text(path.read_text() + "# by hand")  # without an end of line
    path.chmod(0o640)
    second = add_key(path, "bob", "admin", "b")
    keys = read_keys(path)
    assert keys.caller_of(first.encode()).name == "ann"
    assert keys.caller_of(second.encode()).role == Role.ADMIN
    assert first not in path.read_text()
    assert len(set(first)) > 20
    assert "# by hand\nbob" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [one.name for one in path.parent.iterdir()] == ["keys"]


def test_the_file_is_made_for_its_owner_alone(path):
    add_key(path, "ann", "read", "default")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "fields",
    [
        ("ann", "read", "other"),  # the name is taken
        ("bob", "owner", "a"),
        ("bob", "read", ""),
        ("bob", "read", "two words"),
        ("#bob", "read", "a"),
        ("", "read", "a"),
        ("bob", "read", "a\nroot admin a " + DIGESTS[0]),
    ],
)
def test_what_cannot_be_a_key_changes_nothing(path, fields):
    add_key(path, "ann", "read", "default")
    before = path.read_bytes()
    with pytest.raises(UsageError):
        add_key(path, *fields)
    assert path.read_bytes() == before


def test_a_file_that_is_broken_is_not_written_to(path):
    path.write_text("what is this\n")
    with pytest.raises(UsageError, match="line 1"):
        add_key(path, "ann", "read", "default")
    assert path.read_text() == "what is this\n"


def test_keys_that_are_made_at_once_are_all_there(path):
    threads = [
        threading.Thread(target=add_key, args=(path, f"k{i}", "read", "a")) for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(path.read_text().splitlines()) == 8
    read_keys(path)


@pytest.mark.parametrize(("mode", "warned"), [(0o600, 0), (0o644, 1), (0o660, 1)])
def test_who_else_may_read_the_file_is_warned_of(path, mode, warned, caplog):
    add_key(path, "ann", "read", "default")
    path.chmod(mode)
    warn_of_other_readers(path)
    assert len(caplog.records) == warned
