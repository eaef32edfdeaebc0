"""``kvps fit-importance``."""

from __future__ import annotations

from typing import Annotated

import typer

from kvpacket_store.cli.output import JSON_OPTION, out, print_json
from kvpacket_store.cli.progress import progress_bar

__all__ = ["fit_importance"]


def fit_importance(
    store: Annotated[str, typer.Argument(help="The store's folder.")],
    tokens: Annotated[int, typer.Option(help="To look at; an eighth is held out.", min=1)] = 8_000,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Fit what `--compressor kvzap:0.25` scores with to a store's packets; minutes."""
    from kvpacket_store.api import Store
    from kvpacket_store.api.importance_maps import fit_importance_map

    with Store.open(store) as opened, progress_bar("") as update:
        report = fit_importance_map(opened, tokens=tokens, progress=update)
    if as_json:
        print_json(report.to_dict())
    else:
        out.print(
            f"importance map from {report.packets} packets of {report.tokens} tokens. Of what "
            f"matters most in {report.held_out_packets} others it finds {report.found_share:.0%} "
            f"(25% by chance). Use it with --compressor kvzap:0.25"
        )
