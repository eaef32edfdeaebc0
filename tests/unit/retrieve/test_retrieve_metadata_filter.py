"""Promise: a filter accepts what it says, and a malformed one is refused before it selects."""

from __future__ import annotations

import pytest

from kvpacket_store.errors import UsageError
from kvpacket_store.retrieve import MetadataFilter

METADATA = {
    "kind": "note",
    "year": 2021,
    "score": 0.5,
    "draft": True,
    "owner": None,
    "tags": ["red", "blue"],
    "date": "2024-05-01",
    "nested": {"a": 1},
}


@pytest.mark.parametrize(
    "conditions",
    [
        {},
        {"kind": "note"},
        {"kind": ["memo", "note"]},
        {"kind": ("note",)},
        {"year": 2021},
        {"year": 2021.0},
        {"draft": True},
        {"owner": None},
        {"tags": "blue"},
        {"tags": ["green", "red"]},
        {"year": {"gte": 2021}},
        {"year": {"lte": 2021}},
        {"year": {"gte": 2020.5, "lte": 2022}},
        {"year": {"gte": 2021, "lte": 2021}},
        {"year": {"lte": 10**400}},
        {"date": {"gte": "2024-01-01", "lte": "2024-12-31"}},
        {"kind": "note", "year": {"gte": 2000}, "tags": "red"},
    ],
)
def test_accepted(conditions):
    assert MetadataFilter(conditions)(METADATA)


@pytest.mark.parametrize(
    "conditions",
    [
        {"kind": "memo"},
        {"kind": []},
        {"absent": None},
        {"absent": {"gte": 0}},
        {"draft": 1},
        {"year": True},
        {"year": "2021"},
        {"owner": False},
        {"tags": "green"},
        {"year": {"gte": 2022}},
        {"year": {"lte": 2020}},
        {"draft": {"gte": 0}},
        {"kind": {"gte": 0}},
        {"year": {"gte": "0"}},
        {"tags": {"gte": "a"}},
        {"owner": {"lte": 5}},
        {"nested": "a"},
        {"nested": {"gte": 0}},
        {"kind": "note", "year": 1999},
    ],
)
def test_rejected(conditions):
    assert not MetadataFilter(conditions)(METADATA)


@pytest.mark.parametrize(
    "conditions",
    [
        None,
        "kind",
        [("kind", "note")],
        {1: "note"},
        {"kind": [["note"]]},
        {"kind": [{"gte": 1}]},
        {"kind": b"note"},
        {"year": float("nan")},
        {"year": {}},
        {"year": {"gt": 1}},
        {"year": {"gte": 1, "eq": 1}},
        {"year": {"gte": None}},
        {"year": {"gte": True}},
        {"year": {"gte": [1]}},
        {"year": {"lte": float("nan")}},
        {"year": {"gte": 2, "lte": 1}},
        {"year": {"gte": 1, "lte": "2"}},
        {"year": {1: 2}},
        {"year": {"gte": {}, "lte": {}}},
    ],
)
def test_malformed_filters_are_usage_errors(conditions):
    with pytest.raises(UsageError, match="metadata filter"):
        MetadataFilter(conditions)


def test_the_mapping_may_change_afterwards():
    conditions = {"kind": ["note"]}
    accepts = MetadataFilter(conditions)
    conditions["kind"].clear()
    conditions["year"] = 1
    assert accepts(METADATA)
