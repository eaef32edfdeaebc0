"""Data sets: seeded, of the size that was asked for, and never without the answer."""

import gzip
import json

import pytest

from kvpacket_store.errors import UsageError
from kvpacket_store.quality.datasets import (
    DATASETS,
    DataOptions,
    load_datasets,
    questions_of_file,
)

OF_THEIR_OWN = ("xquad", "biographies", "two-hop", "needles", "key-value", "code", "novel")
ANSWER_IS_TEXT = ("xquad", "biographies", "two-hop", "needles", "key-value", "novel")


def load(name, **options):
    found, skipped = load_datasets([name], DataOptions(**{"limit": 6, **options}))
    assert skipped == []
    return found[0]


def text_of(item):
    return " ".join(" ".join(document.text for document in item.documents).split())


@pytest.mark.parametrize("name", OF_THEIR_OWN)
def test_a_set_is_the_same_again_and_other_with_another_seed(name):
    one = load(name)
    assert one == load(name)
    assert one.items[:3] == load(name, limit=3).items
    assert len(one.items) == 6
    if name != "xquad":
        assert [i.question for i in load(name, seed=1).items] != [i.question for i in one.items]


@pytest.mark.parametrize("name", OF_THEIR_OWN)
@pytest.mark.parametrize("packets", [1, 3, 12])
def test_a_question_has_as_many_documents_as_asked_for_and_its_answer_is_there(name, packets):
    for item in load(name, packets=packets).items:
        wanted = max(2, packets) if name == "two-hop" else packets
        assert len(item.documents) == wanted
        assert len({document.text for document in item.documents}) == wanted
        if name in ANSWER_IS_TEXT:
            assert any(answer in text_of(item) for answer in item.answers)


@pytest.mark.parametrize("name", ["biographies", "needles", "key-value", "novel"])
def test_documents_are_about_as_long_as_asked_for(name):
    sizes = []
    for tokens in (120, 900):
        items = load(name, document_tokens=tokens).items
        texts = [document.text for item in items for document in item.documents]
        sizes.append(sum(len(text) for text in texts) / len(texts))
    assert sizes[1] > 4 * sizes[0]


def test_an_answer_stands_in_one_document_alone():
    for item in load("needles", limit=20).items:
        assert sum(item.answers[0] in document.text for document in item.documents) == 1
    for item in load("key-value", limit=20).items:
        assert sum(item.answers[0] in document.text for document in item.documents) == 1


def test_two_hops_need_two_documents():
    for item in load("two-hop", limit=20).items:
        pupil = item.question.partition("teacher of ")[2].split()
        name = f"{pupil[0]} {pupil[1].strip('?')}"
        about = next(d.text for d in item.documents if d.id == name)
        teacher = next(d for d in item.documents if f"from {d.id}." in about)
        assert item.answers[0] in teacher.text


def test_articles_take_turns_and_paragraphs_can_be_added(tmp_path):
    def article(number):
        paragraphs = [
            {
                "context": f"Fact {number}.{i} is told here.",
                "qas": [
                    {"question": f"{number}.{i}?", "answers": [{"text": f"Fact {number}.{i}"}]}
                ],
            }
            for i in range(5)
        ]
        return {"title": f"Article_{number}", "paragraphs": paragraphs}

    folder = tmp_path / "xquad_en"
    folder.mkdir()
    (folder / "xquad.en.json").write_text(json.dumps({"data": [article(i) for i in range(27)]}))
    data = load("xquad", folder=tmp_path, limit=4)
    assert [item.question for item in data.items] == ["24.0?", "25.0?", "26.0?", "24.1?"]
    assert [d.metadata["title"] for d in data.items[0].documents] == ["Article 24"] * 5
    assert "articles 24 to 47" in data.source
    for packets in (2, 9):
        for item in load("xquad", folder=tmp_path, packets=packets).items:
            assert len(item.documents) == packets
            assert item.answers[0] in text_of(item)
    (folder / "xquad.en.json").write_text('{"data": 3}')
    with pytest.raises(UsageError, match="SQuAD's form"):
        load("xquad", folder=tmp_path)


def test_natural_questions_are_in_domain_and_need_their_file(tmp_path):
    found, skipped = load_datasets(["nq"], DataOptions())
    assert found == []
    assert "nq-open-oracle.jsonl.gz" in skipped[0].reason
    rows = [
        {"question": f"{i}?", "answers": [str(i)], "ctxs": [{"title": "t", "text": f"It is {i}."}]}
        for i in range(9)
    ]
    lines = "\n".join(json.dumps(row) for row in rows)
    (tmp_path / "nq-open-oracle.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    data = load("nq", folder=tmp_path, packets=3)
    assert data.domain == "in-domain"
    assert len({item.question for item in data.items}) == 6
    assert all(f"It is {item.answers[0]}." in text_of(item) for item in data.items)
    (tmp_path / "nq-open-oracle.jsonl.gz").write_bytes(gzip.compress(b"{}"))
    with pytest.raises(UsageError, match="oracle file's form"):
        load("nq", folder=tmp_path)


def test_own_questions_are_read_or_refused(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"question": "Q?", "answers": ["a"], "documents": ["It is a."]}\n' * 3)
    data = questions_of_file(path, DataOptions(limit=2))
    assert (data.name, len(data.items), data.items[0].answers) == ("mine", 2, ["a"])
    for text, why in (
        ('{"question": "Q?", "answers": [], "documents": ["x"]}', "no answer"),
        ('{"question": "Q?", "answers": ["a", " "], "documents": ["x"]}', "no answer"),
        ('{"question": "Q?", "answers": ["a"], "documents": []}', "no document"),
        ("", "no questions"),
        ("{}", "is not"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=why):
            questions_of_file(path, DataOptions())
    with pytest.raises(UsageError, match="cannot be read"):
        questions_of_file(tmp_path / "absent.jsonl", DataOptions())


def test_names_are_known():
    assert set(OF_THEIR_OWN) | {"nq"} == set(DATASETS)
    with pytest.raises(UsageError, match="no data set is named"):
        load_datasets(["best"], DataOptions())
