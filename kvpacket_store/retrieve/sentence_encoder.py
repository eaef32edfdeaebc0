"""The forward pass of a sentence encoder. Importing this module imports torch and transformers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging as transformers_logging

from kvpacket_store.errors import ModelError
from kvpacket_store.retrieve.sentence_folder import SentenceFolder

__all__ = ["SentenceEncoder"]

Matrix: TypeAlias = npt.NDArray[np.float32]

_BATCH_TEXTS = 8
_CHARACTERS_PER_TOKEN = 64


class SentenceEncoder:
    """Tokenizer and weights of a folder, in memory, in single precision.

    Parameters
    ----------
    folder : SentenceFolder
        Read from disk here, never from a hub.

    Raises
    ------
    ModelError
        Weights or tokenizer cannot be loaded, or weights are missing. Copy the folder again.
    """

    def __init__(self, folder: SentenceFolder) -> None:
        self._folder = folder
        self._tokenizer, self._model = _load(folder)
        self._tokenizer_lock = threading.Lock()  # truncation is a state of the tokenizer

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Return unit vectors ``float32 [n, dimension]``, in the order of ``texts``."""
        token_ids = self._tokenize(texts)
        order = sorted(range(len(texts)), key=lambda place: len(token_ids[place]))
        vectors = np.empty((len(texts), self._folder.dimension), dtype=np.float32)
        for start in range(0, len(order), _BATCH_TEXTS):
            batch = order[start : start + _BATCH_TEXTS]
            vectors[batch] = self._forward([token_ids[place] for place in batch])
        return vectors

    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        with self._tokenizer_lock:
            encoded = self._tokenizer(
                [self._readable(text) for text in texts],
                truncation=True,
                max_length=self._folder.max_tokens,
                split_special_tokens=True,
                return_attention_mask=False,
                return_token_type_ids=False,
            )
        token_ids: list[list[int]] = encoded["input_ids"]
        return token_ids

    def _readable(self, text: str) -> str:
        """Cut what truncation would drop (10 MB take seconds to tokenize), mend surrogates."""
        head = text.lstrip()[: _CHARACTERS_PER_TOKEN * self._folder.max_tokens]
        head = head.encode("utf-8", "replace").decode("utf-8")
        return head.lower() if self._folder.lowercase else head

    def _forward(self, token_ids: list[list[int]]) -> Matrix:
        device = self._model.device
        rows = [torch.tensor(row, dtype=torch.long, device=device) for row in token_ids]
        input_ids = pad_sequence(rows, batch_first=True)
        lengths = torch.tensor([len(row) for row in token_ids], device=device)
        mask = torch.arange(input_ids.shape[1], device=device)[None] < lengths[:, None]
        with torch.inference_mode():
            hidden = self._model(input_ids=input_ids, attention_mask=mask.long()).last_hidden_state
            mean = (hidden * mask[..., None]).sum(dim=1) / lengths[:, None]
            unit = torch.nn.functional.normalize(mean, dim=1)
        vectors: Matrix = unit.cpu().numpy()
        return vectors


def _load(folder: SentenceFolder) -> tuple[Any, Any]:
    path = str(folder.path)
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        with _no_progress_bar():
            tokenizer = AutoTokenizer.from_pretrained(path, **local)
            model, report = AutoModel.from_pretrained(
                path, dtype=torch.float32, use_safetensors=True, output_loading_info=True, **local
            )
    except Exception as error:  # the loaders raise whatever the damaged file makes them trip over
        raise ModelError(
            f"sentence encoder {path}: cannot be loaded ({error}); copy the folder again"
        ) from error
    # Absent weights would be drawn at random, and answers would quietly be nonsense.
    absent = sorted(key for key in report["missing_keys"] if not key.startswith("pooler."))
    if absent or report["mismatched_keys"]:
        raise ModelError(
            f"sentence encoder {path}: weights are absent or of another shape "
            f"({absent or report['mismatched_keys']}); copy the folder again"
        )
    return tokenizer, model


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
