"""A source in memory, an embedder without a model, and a sentence encoder of a few kilobytes."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path

import numpy as np
import pytest

from kvpacket_store.retrieve import MiniLMEmbedder


def unit(values) -> np.ndarray:
    vector = np.asarray(values, dtype=np.float32)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


class MemorySource:
    """Namespaces of ``(document_id, segment_index) → (packet_key, embedding)``, numbered."""

    def __init__(self) -> None:
        self.namespaces: dict[str, dict[tuple[str, int], tuple[str, bytes]]] = {}
        self.generations: dict[str, int] = {}
        self.reads = 0
        self._lock = threading.Lock()

    def put(self, namespace: str, document_id: str, segment_index: int, vector) -> None:
        key = hashlib.sha256(f"{document_id}/{segment_index}".encode()).hexdigest()
        blob = np.asarray(vector, dtype="<f4").tobytes()
        self.put_raw(namespace, document_id, segment_index, key, blob)

    def put_raw(self, namespace, document_id, segment_index, packet_key, blob) -> None:
        with self._lock:
            rows = dict(self.namespaces.get(namespace, {}))
            rows[document_id, segment_index] = (packet_key, blob)
            self._commit(namespace, rows)

    def delete(self, namespace: str, document_id: str) -> None:
        with self._lock:
            rows = self.namespaces.get(namespace, {})
            rows = {name: value for name, value in rows.items() if name[0] != document_id}
            self._commit(namespace, rows)

    def _commit(self, namespace, rows) -> None:
        self.namespaces[namespace] = rows
        self.generations[namespace] = self.generations.get(namespace, 0) + 1

    def generation(self, namespace: str) -> int:
        return self.generations.get(namespace, 0)

    def iter_embeddings(self, namespace: str):
        self.reads += 1
        rows = self.namespaces.get(namespace, {})
        for (document_id, segment_index), (packet_key, blob) in rows.items():
            yield document_id, segment_index, packet_key, blob


class WordEmbedder:
    """Equal texts get equal vectors, others unrelated ones."""

    name = "words"

    def __init__(self, dimension: int = 16, digest: str = "d" * 64) -> None:
        self.dimension = dimension
        self.digest = digest

    def embed(self, texts):
        rows = [self._vector(text) for text in texts]
        return np.stack(rows) if rows else np.empty((0, self.dimension), np.float32)

    def _vector(self, text: str) -> np.ndarray:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
        return unit(np.random.default_rng(seed).standard_normal(self.dimension))


@pytest.fixture
def source() -> MemorySource:
    return MemorySource()


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture
def make_embedder():
    return WordEmbedder


@pytest.fixture
def ingest(source, embedder):
    """Put texts under document ids, one segment each."""

    def put(namespace: str, **texts: str) -> None:
        for document_id, text in texts.items():
            source.put(namespace, document_id, 0, embedder.embed([text])[0])

    return put


@pytest.fixture(scope="session")
def minilm() -> MiniLMEmbedder:
    return MiniLMEmbedder()


@pytest.fixture(scope="session")
def _tiny_folder(tmp_path_factory) -> Path:
    import torch
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("encoder") / "tiny"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[", "]"]
    words += ["sep", "the", "river", "bank", "money", "flows"]
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=24,
    )
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    (folder / "1_Pooling").mkdir()
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 8, "do_lower_case": False})
    write_json(folder / "1_Pooling/config.json", {"pooling_mode_mean_tokens": True})
    steps = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    modules = [{"type": f"sentence_transformers.models.{name}", "path": at} for name, at in steps]
    write_json(folder / "modules.json", modules)
    return folder


@pytest.fixture
def tiny_folder(_tiny_folder, tmp_path) -> Path:
    """A copy that a test may damage."""
    import shutil

    return Path(shutil.copytree(_tiny_folder, tmp_path / "tiny"))


def write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value))
