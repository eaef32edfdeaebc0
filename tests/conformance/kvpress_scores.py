"""Scores of NVIDIA's kvpress on a small random Llama; run by an interpreter that has it.

``python kvpress_scores.py OUT`` writes an ``.npz`` with k, v, queries, and each press's scores.
"""

import sys


def small_llama():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(11)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        initializer_range=0.3,
        attn_implementation="eager",
    )
    return LlamaForCausalLM(config).eval()


def layer_inputs(model, token_ids):
    """Each attention's hidden states and position embeddings, and the attention it gives."""
    seen = []

    def note(module, args, kwargs, output):
        hidden = args[0] if args else kwargs["hidden_states"]
        seen.append((module, hidden, kwargs["position_embeddings"], output[1]))

    hooks = [
        layer.self_attn.register_forward_hook(note, with_kwargs=True)
        for layer in model.model.layers
    ]
    model(token_ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    return seen


def rotated(module, hidden, embeddings):
    """Queries, keys and values ``[1, heads, T, D]`` as the attention uses them."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    q, k, v = (
        projection(hidden).unflatten(-1, (-1, module.head_dim)).transpose(1, 2)
        for projection in (module.q_proj, module.k_proj, module.v_proj)
    )
    return *apply_rotary_pos_emb(q, k, *embeddings), v


def main(out, num_slots=70, window=9):
    import kvpress
    import numpy as np
    import torch

    presses = {
        "knorm": kvpress.KnormPress(),
        "keydiff": kvpress.KeyDiffPress(),
        "streaming": kvpress.StreamingLLMPress(compression_ratio=0.6),
        "snapkv": kvpress.SnapKVPress(window_size=window),
        "tova": kvpress.TOVAPress(),
        "h2o": kvpress.ObservedAttentionPress(),
    }
    with torch.no_grad():
        model = small_llama()
        seen = layer_inputs(model, torch.randint(0, 64, (1, num_slots)))
        found = {name: [] for name in (*presses, "q", "k", "v")}
        for module, hidden, embeddings, attention in seen:
            q, k, v = rotated(module, hidden, embeddings)
            for name, tensor in (("q", q), ("k", k), ("v", v)):
                found[name].append(tensor[0])
            for name, press in presses.items():
                observed = attention if name == "h2o" else None
                more = {"position_embeddings": embeddings}
                found[name].append(press.score(module, hidden, k, v, observed, more)[0])
    np.savez(out, **{name: torch.stack(tensors).numpy() for name, tensors in found.items()})


if __name__ == "__main__":
    main(sys.argv[1])
