"""Fitting a codec pack to a store's K and V, and saying what it is worth on unseen packets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvpacket_store import __version__
from kvpacket_store.api.codec_packs import keep_within_cap
from kvpacket_store.api.codec_samples import (
    Sample,
    corpus_samples,
    held_out_apart,
    store_samples,
)
from kvpacket_store.codec import BASE_STEPS, encode, encode_layers
from kvpacket_store.durable import written_whole
from kvpacket_store.errors import ReadOnlyError, UsageError
from kvpacket_store.types import Report

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store
    from kvpacket_store.codec.linear.pack import CodecPack

__all__ = ["TrainReport", "train_codec_pack"]

_FEWEST_TOKENS = 128
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class TrainReport(Report):
    """A new codec pack and its bits per scalar on held-out packets.

    ``bits_per_scalar`` has ``fast``, ``linear`` (one layer), and under ``layers`` by base step
    ``{"base", "total"}``; everything but the pack is counted.
    """

    digest: str
    model: str
    kv_dtype: str
    back: int
    corpus: str
    documents: int
    packets: int
    tokens: int
    held_out_packets: int
    held_out_tokens: int
    pack_bytes: int
    path: str
    bits_per_scalar: dict[str, Any]


def train_codec_pack(
    store: Store,
    *,
    tokens: int = 24_000,
    corpus: str | Path | None = None,
    namespace: str | None = None,
    back: int | None = None,
    out: str | Path | None = None,
    progress: Progress = lambda stage, share: None,
) -> TrainReport:
    """Fit a codec pack to the store's model, and put it into the store's folder.

    Nothing is written before everything is computed; an interruption leaves nothing.

    Parameters
    ----------
    store : Store
        Open for writing. Its packets, of all namespaces or of one, are the sample.
    tokens : int
        How many to look at, a tenth of them held out; 24,000 are enough for 400 channels a layer.
    corpus : path, optional
        A text, folder or JSONL file instead of the store's packets; it is prefilled.
    back : int, optional
        Layers that a prediction looks back, 0 to 3: more bits saved, and more work, with each.
        Default: 2, or as many as a pack of the model may have.
    out : path, optional
        Write the pack here too.
    progress : callable
        Told the stage and the share of it that is done.

    Raises
    ------
    UsageError
        Too few packets, a corpus without documents, a number that cannot be.
    ReadOnlyError, StoreFullError
        The pack cannot be put into the store.
    """
    _check(store, tokens, corpus, namespace, out)
    back = _possible_back(store, back)
    found = (
        store_samples(store, tokens, namespace)
        if corpus is None
        else corpus_samples(store, Path(corpus), tokens)
    )
    samples = _gather(found, tokens, progress)
    trained, held_out = held_out_apart(samples)
    pack = _fit(store, trained, back, progress)
    bits = _bits(held_out, pack, progress)
    name = "packets of the store" if corpus is None else Path(corpus).name
    counts = {
        "documents": len({sample.document for sample in samples}),
        "packets": len(trained),
        "tokens": sum(sample.tokens for sample in trained),
        "held_out_packets": len(held_out),
        "held_out_tokens": sum(sample.tokens for sample in held_out),
    }
    about = {
        "made_by": f"kvpacket-store {__version__}",
        "model": Path(store.meta.model).name,
        "corpus": name,
        **counts,
        "held_out_bits_per_scalar": bits,
    }
    pack = replace(pack, about=about)
    path = keep_within_cap(store, pack)
    if out is not None:
        _copy(path, Path(out))
    return TrainReport(
        digest=pack.digest,
        model=store.meta.model,
        kv_dtype=pack.kv_dtype.value,
        back=back,
        corpus=name,
        pack_bytes=path.stat().st_size,
        path=str(path),
        bits_per_scalar=bits,
        **counts,
    )


def _check(
    store: Store,
    tokens: int,
    corpus: str | Path | None,
    namespace: str | None,
    out: str | Path | None,
) -> None:
    """Refuse what would fail after minutes of work."""
    if store.packets.is_read_only:
        raise ReadOnlyError(f"store {store.path} is open for reading alone; it cannot take a pack")
    if tokens < _FEWEST_TOKENS:
        raise UsageError(f"tokens is {tokens}; a codec pack needs {_FEWEST_TOKENS} at least")
    if corpus is not None and not Path(corpus).exists():
        raise UsageError(f"there is no {str(corpus)!r}; name a text, a folder or JSONL")
    if out is not None and not Path(out).absolute().parent.is_dir():
        raise UsageError(f"{str(out)!r} cannot be written: there is no such folder")
    if namespace is not None:
        store.require_namespace(namespace)


def _possible_back(store: Store, asked: int | None) -> int:
    """Return how many layers to look back: as asked, else the most up to 2 that a pack can have."""
    from kvpacket_store.codec.linear.shapes import PackShape

    if asked is not None and (type(asked) is not int or not 0 <= asked <= 3):
        raise UsageError(f"back is {asked!r:.40}; predictions look back 0 to 3 layers")
    layout = store.layout
    sizes = layout.num_layers, layout.num_kv_heads, layout.head_dim
    problem: ValueError | None = None
    for back in (2, 1, 0) if asked is None else (asked,):
        try:
            PackShape(*sizes, back).require_possible()
        except ValueError as error:
            problem = error
        else:
            return back
    raise UsageError(
        f"a codec pack of this model would be too large ({problem}); let predictions look back "
        "fewer layers, or use level 'fast'"
    ) from problem


def _gather(found: Iterator[Sample], tokens: int, progress: Progress) -> list[Sample]:
    samples: list[Sample] = []
    got = 0
    progress("gather", 0.0)
    for sample in found:
        samples.append(sample)
        got += sample.tokens
        progress("gather", min(got / tokens, 1.0))
    return samples


def _fit(store: Store, trained: list[Sample], back: int, progress: Progress) -> CodecPack:
    from kvpacket_store.codec.linear.train import Options, train

    return train(
        [(sample.k, sample.v) for sample in trained],
        store.kv_dtype,
        weights=store.meta.fingerprint["weights"],
        options=Options(back=back),
        progress=lambda share: progress("fit", share),
    )


def _bits(held_out: list[Sample], pack: CodecPack, progress: Progress) -> dict[str, Any]:
    """Code the held-out packets in every setting."""
    kinds = ["fast", "linear", *BASE_STEPS]
    stored = {kind: [0, 0] for kind in kinds}
    for done, sample in enumerate(held_out):
        for at, kind in enumerate(kinds):
            sizes = _sizes(sample, kind, pack)
            stored[kind] = [total + size for total, size in zip(stored[kind], sizes, strict=True)]
            progress("measure", (done + (at + 1) / len(kinds)) / len(held_out))
    scalars = sum(sample.k.size + sample.v.size for sample in held_out)
    bits = {kind: [round(8 * size / scalars, 3) for size in stored[kind]] for kind in kinds}
    layers = {
        step: {"base": bits[step][0], "total": round(sum(bits[step]), 3)} for step in BASE_STEPS
    }
    return {"fast": bits["fast"][0], "linear": bits["linear"][0], "layers": layers}


def _sizes(sample: Sample, kind: str, pack: CodecPack) -> tuple[int, int]:
    """Return the bytes of a packet's records."""
    pair, kv_dtype = (sample.k, sample.v), pack.kv_dtype
    if kind == "fast":
        return len(encode(*pair, kv_dtype=kv_dtype, level="fast")), 0
    if kind == "linear":
        return len(encode(*pair, kv_dtype=kv_dtype, level="linear", pack=pack)), 0
    both = encode_layers(*pair, kv_dtype=kv_dtype, pack=pack, base_step=kind)
    return len(both.base), len(both.enhancement)


def _copy(kept: Path, out: Path) -> None:
    """Write the pack where the caller wants it too, whole or not at all."""
    try:
        with written_whole(out) as scratch:
            scratch.write_bytes(kept.read_bytes())
    except OSError as error:
        raise UsageError(
            f"the codec pack is in {kept}; {out} cannot be written ({error.strerror}): copy it"
        ) from error
