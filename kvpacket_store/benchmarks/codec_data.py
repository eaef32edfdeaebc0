"""K and V that codecs are measured on: of texts, prefilled here, or of a folder of arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvpacket_store.benchmarks.paragraphs import example_documents
from kvpacket_store.codec.linear.pack import CodecPack
from kvpacket_store.codec.packs import installed_packs
from kvpacket_store.errors import UsageError
from kvpacket_store.text import read_documents
from kvpacket_store.types import BitArray, Document, KVDtype

if TYPE_CHECKING:
    from kvpacket_store.models import Model
    from kvpacket_store.prefill import Prefiller

__all__ = ["CodecData", "Passages", "arrays_of", "documents_of", "prefilled"]

Pair = tuple[BitArray, BitArray]
_EXAMPLES = "examples"


class Passages(NamedTuple):
    """Packets of one text, all of one length; of documents, ``tokens`` is the mean of theirs."""

    text: str
    tokens: int
    packets: list[Pair]


@dataclass(frozen=True)
class CodecData:
    """What is measured, and the codec pack that goes with it, if there is one."""

    model: str
    kv_dtype: KVDtype
    pack: CodecPack | None
    passages: list[Passages] = field(repr=False)


def prefilled(
    model: str | Model,
    texts: Sequence[Path],
    tokens: Sequence[int],
    count: int,
    pack: CodecPack | None,
) -> CodecData:
    """Prefill ``count`` packets of each length from each text; the example corpus comes first.

    Raises
    ------
    UsageError
        A text is shorter than one packet, or cannot be read.
    """
    loaded, prefiller = _prefiller(model)
    passages = []
    for name, text in _read(texts):
        ids = loaded.tokenizer.tokenize(text)
        for length in tokens:
            if not 1 <= length <= min(len(ids), loaded.max_positions):
                raise UsageError(
                    f"{name} has {len(ids)} tokens, and model {loaded.name!r} "
                    f"{loaded.max_positions} positions; no packet of {length} can be made of it"
                )
            bodies = [
                prefiller.segment(tuple(ids[start : start + length]))
                for start in range(0, min(count * length, len(ids) - length + 1), length)
            ]
            passages.append(Passages(name, length, [(body.k, body.v) for body in bodies]))
    return _data(loaded, prefiller, pack, passages)


def documents_of(model: str | Model, path: Path, count: int, pack: CodecPack | None) -> CodecData:
    """Prefill documents of a text, folder or JSONL, each as a packet of its own length.

    Parameters
    ----------
    count : int
        Packets to make, of documents spread evenly over all; of as many as there are at most.

    Raises
    ------
    UsageError
        There are none, or one has no tokens or more than the model has positions.
    """
    loaded, prefiller = _prefiller(model)
    ids = [tuple(loaded.tokenizer.tokenize(text)) for text in _texts(path)]
    chosen = [ids[i * len(ids) // count] for i in range(count)] if count < len(ids) else ids
    if not all(1 <= len(one) <= loaded.max_positions for one in chosen):
        raise UsageError(f"a document of {path} is not of 1 to {loaded.max_positions} tokens")
    bodies = [prefiller.segment(one) for one in chosen]
    mean = round(sum(map(len, chosen)) / len(chosen))
    passages = Passages(path.name, mean, [(body.k, body.v) for body in bodies])
    return _data(loaded, prefiller, pack, [passages])


def _prefiller(model: str | Model) -> tuple[Model, Prefiller]:
    from kvpacket_store.adapters import Adapter
    from kvpacket_store.models import load_model
    from kvpacket_store.prefill import Prefiller

    loaded = load_model(model) if isinstance(model, str) else model
    return loaded, Prefiller(loaded, Adapter.none(int(loaded.embedding.weight.shape[1])))


def _data(
    loaded: Model, prefiller: Prefiller, pack: CodecPack | None, passages: list[Passages]
) -> CodecData:
    weights, kv_dtype = loaded.fingerprint.weights, prefiller.kv_dtype
    shipped = (p for p in installed_packs() if (p.weights, p.kv_dtype) == (weights, kv_dtype))
    return CodecData(loaded.name, kv_dtype, pack or next(shipped, None), passages)


def _read(paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    yield _EXAMPLES, "\n".join(document.text for document in example_documents())
    for path in paths:
        yield path.name, "\n".join(_texts(path))


def _texts(path: Path) -> list[str]:
    texts = [d.text for d in read_documents([str(path)]) if isinstance(d, Document)]
    if not texts:
        raise UsageError(f"{path} holds no text that can be read; name a text or JSONL file")
    return texts


def arrays_of(
    folder: Path, model: str, tokens: Sequence[int], count: int, pack: CodecPack | None
) -> CodecData:
    """Read bf16 arrays ``k`` and ``v`` [L, H, T, D], or [N, L, H, T, D], of ``.npz`` files.

    Raises
    ------
    UsageError
        There are none, or not of that form, or all are shorter than the packets asked for.
    """
    passages = []
    for path in sorted(folder.glob(f"{model}*.npz")) or sorted(folder.glob("*.npz")):
        k, v = _pair_of(path)
        for length in tokens:
            starts = [(n, at) for n in range(len(k)) for at in range(0, k.shape[3], length)]
            whole = [(n, at) for n, at in starts if at + length <= k.shape[3]][:count]
            cut = [
                tuple(np.ascontiguousarray(side[n, :, :, at : at + length]) for side in (k, v))
                for n, at in whole
            ]
            if cut:
                passages.append(Passages(path.stem, length, [(one[0], one[1]) for one in cut]))
    if not passages:
        raise UsageError(f"{folder} has no .npz file of {min(tokens)} tokens or more")
    layers, heads, _, head_dim = passages[0].packets[0][0].shape
    shipped = (
        p
        for p in installed_packs()
        if (p.about.get("model"), p.kv_dtype) == (model, KVDtype.BF16)
        and p.shape[:3] == (layers, heads, head_dim)
    )
    return CodecData(model, KVDtype.BF16, pack or next(shipped, None), passages)


def _pair_of(path: Path) -> Pair:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            pair = arrays["k"], arrays["v"]
    except (KeyError, ValueError, OSError) as error:
        raise UsageError(f"{path} has no arrays k and v: {error}") from error
    k, v = (side[None] if side.ndim == 4 else side for side in pair)
    if k.ndim != 5 or k.shape != v.shape or not k.dtype == v.dtype == np.uint16:
        raise UsageError(
            f"{path} has k {k.dtype} {k.shape} and v {v.dtype} {v.shape}; "
            "bit patterns uint16 [L, H, T, D] are wanted"
        )
    return k, v
