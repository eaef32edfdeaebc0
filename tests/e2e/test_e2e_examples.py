"""The examples run as they are printed."""

import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_langchain_example_answers(smollm2_engine):
    question = "Who wrote the political poem The Mask of Anarchy?"
    found = load("langchain_answer").answer(str(smollm2_engine.store.path), question)
    assert found == smollm2_engine.generate(question, top_k=5).text
    assert "Mask of Anarchy" in found


@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")  # transformers, about pad and mask
def test_the_readmes_python_runs(tmp_path, monkeypatch):
    readme = (EXAMPLES.parent / "README.md").read_text()
    code = readme.partition("```python\n")[2].partition("```")[0]
    assert "Store.create" in code
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    assert "Alps" in names["answer"].text
    assert names["answer"].usage.cached_tokens > 0
    names["store"].close()
