"""Scores of token droppers are those of NVIDIA's kvpress, where both have the method.

kvpress needs an older transformers than ours and patches it when imported, so it runs in an
environment and a process of its own.
"""

import site
import subprocess
import venv
from pathlib import Path

import numpy as np
import pytest
import torch

from kvpacket_store.compress import PromptKV, parse_compressor
from kvpacket_store.compress.scorers import (
    h2o_scores,
    keydiff_scores,
    knorm_scores,
    snapkv_scores,
    tova_scores,
)

pytestmark = [pytest.mark.conformance, pytest.mark.slow]

SCRIPT = Path(__file__).with_name("kvpress_scores.py")
WANTED = ["kvpress==0.5.5", "transformers>=4.56,<5.3"]
WINDOW = 9


def environment_with_kvpress(folder):
    """An interpreter with kvpress; torch and what else fits comes from the one that runs this."""
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    own = next(folder.glob("lib/python*/site-packages"))
    # after the environment's own packages, so that an older transformers there hides ours
    (own / "parent.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *WANTED]
    installed = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if installed.returncode:
        last = (installed.stderr.strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"the package index gives no kvpress here: {last}")
    return python


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """K, V, queries and scores of two layers, as kvpress has them."""
    folder = tmp_path_factory.mktemp("kvpress")
    python, out = environment_with_kvpress(folder / "venv"), folder / "scores.npz"
    command = [str(python), str(SCRIPT), str(out)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    with np.load(out) as found:
        return {name: torch.from_numpy(found[name]) for name in found.files}


def prompt_of(theirs, num_rows):
    q, k = theirs["q"], theirs["k"]
    return PromptKV(k, theirs["v"], k.shape[-1] ** -0.5, queries=q[:, :, -num_rows:])


@pytest.mark.parametrize(
    ("name", "score", "num_rows"),
    [
        pytest.param("knorm", knorm_scores, 1, id="knorm"),
        pytest.param("keydiff", keydiff_scores, 1, id="keydiff"),
        pytest.param("snapkv", snapkv_scores, WINDOW, id="snapkv"),
        pytest.param("tova", tova_scores, WINDOW, id="tova"),
        pytest.param("h2o", h2o_scores, 70, id="h2o, all rows observed"),
    ],
)
def test_scores_agree(theirs, name, score, num_rows):
    ours = score(prompt_of(theirs, num_rows))
    assert ours.shape == theirs[name].shape == (2, 2, 70)
    # the script rotates and attends in another order of operations, and on another transformers
    torch.testing.assert_close(ours, theirs[name], rtol=1e-4, atol=1e-6)


def test_streaming_keeps_the_same_slots(theirs):
    """Of 70 slots kvpress prunes 42 at 60 %; equal scores, so which are kept is a set."""
    kept = [row.nonzero().flatten().tolist() for row in theirs["streaming"].flatten(0, 1)]
    plan = parse_compressor("streaming:0.4").plan(prompt_of(theirs, 1))
    assert plan.positions.flatten(0, 1).tolist() == kept


@pytest.mark.parametrize("name", ["knorm", "keydiff", "snapkv"])
def test_kept_slots_agree(theirs, name):
    plan = parse_compressor(f"{name}:0.5").plan(prompt_of(theirs, WINDOW))
    scores = theirs[name].clone()
    scores[..., :4] = scores.max() + 1  # sinks, which our droppers always keep
    wanted = scores.topk(35, dim=-1).indices.sort(dim=-1).values
    assert torch.equal(plan.positions, wanted)
