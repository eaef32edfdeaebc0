"""A store whose pair nobody has looked at is refused where that is asked for."""

import pytest
from kvpacket_store._server import serve

from kvpacket_store.errors import QualityError


def test_an_unverified_pair_is_refused_before_anything_is_served(new_store):
    store = new_store()
    path = store.path
    store.close()
    with pytest.raises(QualityError, match="kvps adapter eval"):
        serve(path, port=0, require_verified=True)
