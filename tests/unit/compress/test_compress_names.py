"""Names of compressors: what is taken, and what a wrong one is told."""

import re

import pytest

from kvpacket_store.compress import compressor_names, parse_compressor
from kvpacket_store.errors import UsageError


@pytest.mark.parametrize(
    "name",
    ["exact", "int8", "snapkv:1", "snapkv:.25", "tova:1e-3*int4", "kivi", "kivi:2", "noise:0"],
)
def test_a_name_is_kept_as_it_was_given(name):
    assert parse_compressor(name).name == name


@pytest.mark.parametrize(
    ("name", "told"),
    [
        pytest.param("", "no compressor is named ''", id="empty"),
        pytest.param("gzip", "no compressor is named 'gzip'", id="unknown"),
        pytest.param("SnapKV:0.5", "no compressor is named 'SnapKV'", id="case"),
        pytest.param("int8*", "no compressor is named ''", id="empty part"),
        pytest.param("snapkv", "snapkv:0.25", id="no share"),
        pytest.param("snapkv:0", "share of slots", id="share 0"),
        pytest.param("snapkv:1.01", "share of slots", id="share above 1"),
        pytest.param("snapkv:-0.5", "share of slots", id="negative share"),
        pytest.param("snapkv:half", "'half' is not a number", id="word"),
        pytest.param("snapkv:", "'' is not a number", id="nothing after the colon"),
        pytest.param("snapkv:nan", "'nan' is not a number", id="nan"),
        pytest.param("noise:inf", "'inf' is not a number", id="infinite"),
        pytest.param("snapkv:0.5:0.5", "is not a number", id="two numbers"),
        pytest.param("int8:4", "takes no number", id="int8 with a number"),
        pytest.param("exact:1", "takes no number", id="exact with a number"),
        pytest.param("fp8:0.5", "takes no number", id="fp8 with a number"),
        pytest.param("kivi:3", "bits are 2 or 4", id="odd bits"),
        pytest.param("noise:-1", "0 or more", id="negative noise"),
        pytest.param("int8*int4", "quantises twice", id="two quantisers"),
        pytest.param("kvzap:0.5", "importance map", id="no map"),
    ],
)
def test_a_wrong_name_is_told_why(name, told):
    with pytest.raises(UsageError, match=re.escape(told)):
        parse_compressor(name)


def test_an_unknown_name_is_told_all_names():
    with pytest.raises(UsageError) as raised:
        parse_compressor("zip:0.5")
    for name in compressor_names():
        assert name in str(raised.value)
