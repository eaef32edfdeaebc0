"""How a store encodes: level, layers and codec pack, checked against each other and the model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kvpacket_store.api.codec_packs import load_pack
from kvpacket_store.codec import BASE_STEPS, DEFAULT_BASE_STEP, are_base_steps
from kvpacket_store.codec.packs import installed_packs
from kvpacket_store.codec.step_costs import DEFAULT_BASE_BITS, StepCosts
from kvpacket_store.errors import LevelUnavailableError, UsageError
from kvpacket_store.types import KVDtype, KVLayout

if TYPE_CHECKING:
    from kvpacket_store.codec.linear.pack import CodecPack

__all__ = ["BaseStep", "PackNeed", "choose_base_step", "choose_layers", "choose_pack"]

BaseStep: TypeAlias = "str | float | tuple[str, str] | Sequence[tuple[str, str]]"
"""For all of K and V; for K and V apart; a pair for each layer; or bits a scalar to share out."""

_LEVELS = ("raw", "fast", "linear")
_TO_COME = ("spec",)
_MOST_LAYERS = {"linear": 2}


class PackNeed(NamedTuple):
    """What a codec pack has to be made for.

    Parameters
    ----------
    weights : str
        SHA-256 of the model's weights.
    kv_dtype : KVDtype
        Of the store's packets.
    layout : KVLayout
        Of the model.
    """

    weights: str
    kv_dtype: KVDtype
    layout: KVLayout

    @property
    def max_pack_bytes(self) -> int:
        """What a fitting pack's contents may take: three layers back, and 16 MiB about it."""
        from kvpacket_store.codec.linear.shapes import PackShape

        layout = self.layout
        sizes = layout.num_layers, layout.num_kv_heads, layout.head_dim
        per_channel_bytes = 32 * 2 * layout.num_layers * layout.num_kv_heads * layout.head_dim
        return PackShape(*sizes, 3).num_weights + per_channel_bytes + (16 << 20)

    def misfit(self, pack: CodecPack) -> str | None:
        """Return by what a pack does not fit, if by anything."""
        layout = self.layout
        wanted = (layout.num_layers, layout.num_kv_heads, layout.head_dim)
        if pack.weights != self.weights:
            return "it is of another model"
        if pack.kv_dtype is not self.kv_dtype:
            return f"it is for {pack.kv_dtype}, the store holds {self.kv_dtype}"
        if tuple(pack.shape[:3]) != wanted:
            return f"it is for {tuple(pack.shape[:3])} layers, heads and dimensions, not {wanted}"
        return None


def choose_layers(codec: str, layers: int | None) -> int:
    """Return in how many layers packets of that level are stored: as asked, else its most.

    Raises
    ------
    LevelUnavailableError
        The level comes with a later version.
    UsageError
        There is no such level, or it has not so many layers.

    Examples
    --------
    >>> choose_layers("linear", None), choose_layers("linear", 1), choose_layers("fast", None)
    (2, 1, 1)
    """
    if codec not in (*_LEVELS, *_TO_COME):
        raise UsageError(f"codec level {codec!r} is unknown; take {', '.join(_LEVELS)}")
    most = _MOST_LAYERS.get(codec, 1)
    if layers is not None and (type(layers) is not int or not 1 <= layers <= most):
        allowed = "1" if most == 1 else "1 or 2"
        raise UsageError(
            f"codec level {codec!r} stores a packet in {allowed} layers, {layers!r} were asked for"
        )
    if codec in _TO_COME:
        raise LevelUnavailableError(
            f"codec level {codec!r} comes with a later version; take {', '.join(_LEVELS)}"
        )
    return layers or most


def choose_base_step(
    asked: BaseStep | None, layers: int, num_layers: int, costs: StepCosts | None = None
) -> tuple[tuple[str, str], ...] | None:
    """Return the base's steps by model layer, for K and for V; None where there is no base.

    Parameters
    ----------
    asked : BaseStep or None
        A number: what harms answers least of what takes so many bits a scalar. None: of 2.4 bits
        where costs are known, else the codec's default.
    layers : int
        In which a packet is stored; of one there is no base.
    num_layers : int
        Of the model.
    costs : StepCosts, optional
        With the codec pack that is to be used.

    Raises
    ------
    UsageError
        There is no such step, no base, or no costs to share out bits by.

    Examples
    --------
    >>> choose_base_step(("sigma/8", "sigma/2"), 2, 3)
    (('sigma/8', 'sigma/2'), ('sigma/8', 'sigma/2'), ('sigma/8', 'sigma/2'))
    """
    if layers == 1:
        if asked is not None:
            raise UsageError(
                "packets in one layer have no base; leave base_step out, or take layers=2"
            )
        return None
    pairs: Any
    if asked is None:
        asked = DEFAULT_BASE_STEP if costs is None else DEFAULT_BASE_BITS
    if isinstance(asked, int | float) and not isinstance(asked, bool):
        asked = _within(costs, asked)
    match asked:
        case str(step):
            pairs = [(step, step)] * num_layers
        case [str(k), str(v)]:
            pairs = [(k, v)] * num_layers
        case rows:
            pairs = rows
    if not are_base_steps(pairs, num_layers):
        raise UsageError(
            f"base_step is one of {', '.join(BASE_STEPS)}, a pair of them for K and V, such a "
            f"pair for each of {num_layers} layers, or bits a scalar; not {asked!r:.80}"
        )
    return tuple((k, v) for k, v in pairs)


def _within(costs: StepCosts | None, bits: float) -> tuple[tuple[str, str], ...]:
    """Share out bits by costs."""
    if costs is None:
        raise UsageError(
            f"base_step {bits}: what steps cost with this codec pack is not known; measure it with "
            "`kvps codec steps STORE`, or name steps"
        )
    return costs.steps_within(bits)


def choose_pack(
    codec: str,
    asked: CodecPack | str | Path | None,
    need: PackNeed,
    kept: Iterable[CodecPack] = (),
) -> CodecPack | None:
    """Return the pack that new records are coded with: what was asked for, else one that fits.

    Parameters
    ----------
    codec : str
        Levels other than ``linear`` take none.
    asked : CodecPack, path of a file, or None
        None: the first of ``kept`` that fits, else the shipped one.
    need : PackNeed
        What it must be made for.
    kept : iterable of CodecPack
        Those that the store has.

    Raises
    ------
    LevelUnavailableError
        No pack was asked for, and none is at hand.
    UsageError
        What was asked for does not fit, or the level takes none.
    """
    if codec != "linear":
        if asked is not None:
            raise UsageError(f"codec level {codec!r} takes no codec pack; leave it out")
        return None
    if asked is not None:
        pack = load_pack(Path(asked)) if isinstance(asked, str | Path) else asked
        if reason := need.misfit(pack):
            raise UsageError(f"the codec pack does not fit this store: {reason}")
        return pack
    for candidates in (kept, installed_packs()):
        for pack in candidates:
            if need.misfit(pack) is None:
                return pack
    raise LevelUnavailableError(
        f"codec level 'linear' needs a codec pack of this model at {need.kv_dtype}, and none ships "
        "for it: ingest a sample into a store of level fast, train one with `kvps codec train`, "
        "then go over with `kvps codec recode STORE --codec linear`"
    )
