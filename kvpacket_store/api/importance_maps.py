"""Importance maps of a store: found for `kvzap`, and fitted to its packets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from kvpacket_store import __version__
from kvpacket_store.api.importance import packet_prompt
from kvpacket_store.api.loader import PacketLoader
from kvpacket_store.compress import ImportanceMap, PromptKV, load_map, save_map, shipped_map
from kvpacket_store.errors import ReadOnlyError, UsageError
from kvpacket_store.store.disk_use import PACKS_FOLDER
from kvpacket_store.store.failures import as_store_error
from kvpacket_store.types import Report

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store

__all__ = ["MapReport", "fit_importance_map", "map_of"]

_FILE = "importance-map.safetensors"
_HELD_OUT_EVERY = 8
_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class MapReport(Report):
    """A new importance map, and how well it finds what matters in packets that it never saw.

    ``found_share`` is the share of the most important quarter of a head's slots that is also the
    map's most important quarter; by chance it is 0.25.
    """

    path: str
    packets: int
    tokens: int
    held_out_packets: int
    found_share: float


def map_of(store: Store) -> ImportanceMap | None:
    """Return what `kvzap` scores with: the store's own map, else a shipped one, if there is any.

    Raises
    ------
    UsageError
        The store's own file is damaged, or of another model.
    """
    weights = store.meta.fingerprint["weights"]
    own = store.path / PACKS_FOLDER / _FILE
    return load_map(own, weights) if own.is_file() else shipped_map(weights)


def fit_importance_map(
    store: Store,
    *,
    tokens: int = 8_000,
    progress: Callable[[str, float], None] = lambda stage, share: None,
) -> MapReport:
    """Fit a map to a store's packets, and put it into the store's folder.

    Parameters
    ----------
    store : Store
        Open for writing. What its packets were not filed with is judged now.
    tokens : int
        How many to look at; every eighth packet is held out.
    progress : callable
        Told the stage and the share of it that is done.

    Raises
    ------
    UsageError
        Fewer than two packets.
    ReadOnlyError, StoreFullError
        The map cannot be put into the store.
    """
    if store.packets.is_read_only:
        raise ReadOnlyError(f"store {store.path} is open for reading alone; it cannot take a map")
    found = list(_packets(store, tokens))
    if len(found) < 2:
        raise UsageError(f"store {store.path} has {len(found)} packets; a map needs two at least")
    held_out = found[::_HELD_OUT_EVERY]
    fitted_to = [one for index, one in enumerate(found) if index % _HELD_OUT_EVERY]
    loader = PacketLoader(store)

    def prompts(chosen: list[tuple[str, str]], stage: str) -> Iterator[PromptKV]:
        for index, (namespace, key) in enumerate(chosen):
            progress(stage, index / len(chosen))
            yield packet_prompt(store, loader, namespace, key)

    fitted = ImportanceMap.fit(prompts(fitted_to, "judge"))
    shares = [_found_share(fitted, prompt) for prompt in prompts(held_out, "measure")]
    report = MapReport(
        path=str(store.path / PACKS_FOLDER / _FILE),
        packets=len(fitted_to),
        tokens=sum(store.packets.get_manifest(*one).tokens for one in fitted_to),
        held_out_packets=len(held_out),
        found_share=sum(shares) / len(shares),
    )
    _keep(store, fitted, report)
    return report


def _packets(store: Store, tokens: int) -> Iterator[tuple[str, str]]:
    """Yield namespaces and keys of packets with so many tokens together, each packet once."""
    left, seen = tokens, set[str]()
    for namespace in store.packets.namespaces():
        for key in store.packets.iter_packet_keys(namespace):
            manifest = store.packets.get_manifest(namespace, key)
            if left <= 0:
                return
            if manifest.tokens and not manifest.is_evicted and key not in seen:
                seen.add(key)  # of two namespaces one would be fitted to, the other held out
                left -= manifest.tokens
                yield namespace, key


def _found_share(fitted: ImportanceMap, prompt: PromptKV) -> float:
    """Return which share of the slots that matter most the map would keep."""
    assert prompt.importance is not None  # noqa: S101 - `packet_prompt` gives it
    count = max(round(_SHARE * prompt.num_slots), 1)
    wanted = prompt.importance.topk(count).indices
    chosen = fitted(prompt).topk(count).indices
    common = (wanted[..., None] == chosen[..., None, :]).any(-1)
    return float(common.double().mean())


def _keep(store: Store, fitted: ImportanceMap, report: MapReport) -> None:
    about = {
        "made_by": f"kvpacket-store {__version__}",
        "model": Path(store.meta.model).name,
        "packets": str(report.packets),
        "tokens": str(report.tokens),
        "found_share": f"{report.found_share:.3f}",
    }
    path = Path(report.path)
    try:
        path.parent.mkdir(exist_ok=True)
        save_map(fitted, path, store.meta.fingerprint["weights"], about)
    except (OSError, SafetensorError) as error:  # which wraps what the disk says
        raise as_store_error(OSError(f"importance map {path}: {error}"), store.path) from error
