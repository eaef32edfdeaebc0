"""``kvps ask``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvpacket_store.cli.output import JSON_OPTION, NAMESPACE_OPTION, err, out, plain, print_json
from kvpacket_store.errors import UsageError

if TYPE_CHECKING:
    from kvpacket_store.api import Answer, Engine

__all__ = ["ask"]


def ask(
    store: Annotated[str, typer.Argument(help="The store's folder.")],
    question: Annotated[str, typer.Argument(help="What to ask.")],
    docs: Annotated[
        str | None, typer.Option(help="Document ids, comma-separated; retrieved without.")
    ] = None,
    doc: Annotated[
        list[str] | None,
        typer.Option(help="One document id; may be repeated, and may hold commas."),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="Segments to retrieve.", show_default="5")
    ] = None,
    namespace: Annotated[str, NAMESPACE_OPTION] = "default",
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer.")] = 64,
    consistency: Annotated[str, typer.Option(help="packet or recompute.")] = "packet",
    decode: Annotated[
        str,
        typer.Option(
            help="auto (draft where it pays), verified (always) or full (one token a step)."
        ),
    ] = "auto",
    exactness: Annotated[
        str,
        typer.Option(
            help="bit or guarded: how a draft is verified where a row's bits depend on its company."
        ),
    ] = "guarded",
    compressor: Annotated[
        str | None,
        typer.Option(
            help="What to draft on: base, lookup, snapkv:0.25, importance:0.25, kvzap:0.25, int8, "
            "snapkv:0.25*int8, or lookup+snapkv:0.25; chosen without."
        ),
    ] = None,
    draft_model: Annotated[
        str | None,
        typer.Option(
            help="A smaller model of the same tokenizer that drafts; in --compressor it is 'model'."
        ),
    ] = None,
    draft_tokens: Annotated[
        int | None,
        typer.Option(help="Tokens to draft before each verification; as many as pay without."),
    ] = None,
    provisional: Annotated[
        bool, typer.Option("--provisional", help="Show drafted text too, dim on stderr.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="For --temperature above 0.")] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    sampling_top_k: Annotated[
        int, typer.Option(help="Sample among so many tokens; 0 among all.")
    ] = 0,
    top_p: Annotated[float, typer.Option(help="Sample among this share of probability.")] = 1.0,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1: repeat less.")] = 1.0,
    require_verified: Annotated[
        bool,
        typer.Option(
            "--require-verified", help="Refuse a model and adapter without a quality report."
        ),
    ] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Answer a question from the store's packets."""
    if provisional and as_json:
        raise UsageError("--provisional shows text as it comes; leave it out with --json")
    if docs is not None and not docs.strip(","):
        raise UsageError("--docs names no document; leave it out to retrieve")
    named = [*(part for part in (docs or "").split(",") if part), *(doc or ())]
    request: dict[str, Any] = {
        "documents": named or None,
        "top_k": top_k,
        "namespace": namespace,
        "max_new_tokens": max_new_tokens,
        "consistency": consistency,
        "decode": decode,
        "exactness": exactness,
        "compressor": compressor,
        "draft_tokens": draft_tokens,
        "seed": seed,
        "temperature": temperature,
        "sampling_top_k": sampling_top_k,
        "top_p": top_p,
        "repetition_penalty": repetition_penalty,
    }
    from kvpacket_store.api import Engine, Store

    with Store.open(store) as opened:
        engine = Engine(opened, draft_model=draft_model, require_verified=require_verified)
        if as_json:
            print_json(engine.generate(question, **request).to_dict())
        else:
            _tell(_stream(engine, question, request | {"provisional": provisional}))


def _stream(engine: Engine, question: str, request: dict[str, Any]) -> Answer:
    """Print the answer as it comes."""
    answer = None
    for piece in engine.stream(question, **request):
        if piece.provisional:
            err.print(plain(piece.text), end="", style="dim")
        else:
            out.print(plain(piece.text), end="")
        answer = piece.answer
    out.print()
    if answer is None:
        raise AssertionError("a stream ends with its answer")
    return answer


def _tell(answer: Answer) -> None:
    """Say where the answer came from, and where the time went."""
    for document in answer.documents:
        score = "" if document.score is None else f"  {document.score:.3f}"
        tokens = sum(packet.tokens for packet in document.packets)
        tiers = ", ".join(sorted({packet.tier for packet in document.packets}))
        err.print(plain(f"  {document.id}{score}  {tokens} tokens from {tiers}"))
    usage, timings = answer.usage, answer.timings_ms
    first = 0.0 if timings.first_token is None else timings.first_token
    err.print(
        f"  {usage.cached_tokens} of {usage.prompt_tokens} prompt tokens cached; first token after "
        f"{first:.0f} ms, {usage.completion_tokens} tokens in {timings.total:.0f} ms"
    )
    if answer.decode.mode == "verified":
        err.print(f"  {_drafted(answer)}")
    for fallback in answer.fallbacks:
        err.print(f"  packet {fallback.packet_key[:12]} prefilled again: {fallback.reason}")


def _drafted(answer: Answer) -> str:
    """Say how the answer was drafted and verified."""
    usage, decode = answer.usage, answer.decode
    drafted = usage.accepted_draft_tokens + usage.rejected_draft_tokens
    bits = decode.draft_bits_per_scalar
    return ", ".join(
        [
            f"verified in {decode.rounds} rounds",
            f"{usage.accepted_draft_tokens} of {drafted} drafted tokens accepted",
            *([] if bits is None else [f"drafts on {bits:.2f} bits a scalar"]),
            "exact K and V pinned" if decode.pinned else "exact K and V swapped in",
        ]
    )
