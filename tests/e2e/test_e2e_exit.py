"""A process may end while exact K and V are on their way."""

import subprocess
import sys

PROGRAM = """
import sys
import kvpacket_store as kv
from kvpacket_store.api import swap_in
store = kv.Store.create(sys.argv[1], model="smollm2", codec="linear")
store.ingest([kv.Document(id="a", text="The Rhine rises in the Alps. " * 60)])
engine, place = kv.Engine(store), swap_in.place_layer

def slow(*args, **kwargs):
    for _ in range(100):
        place(*args, **kwargs)

swap_in.place_layer = slow
stream = engine.stream("Where?", documents=["a"], decode="verified", max_new_tokens=8)
print("on its way")  # the swap has begun, nothing was drafted yet
"""


def test_a_process_that_ends_amid_a_swap_ends_well(tmp_path):
    arguments = [sys.executable, "-c", PROGRAM, str(tmp_path / "s.kvps")]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=300)
    assert (ended.returncode, ended.stdout) == (0, "on its way\n"), ended.stderr
