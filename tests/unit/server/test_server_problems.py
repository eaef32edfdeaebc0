"""Every error of the package has its status; what is inside stays inside."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from kvpacket_store._server.problems import problem_of
from kvpacket_store._server.refusals import ShuttingDownError

from kvpacket_store import errors

STATUS = {
    errors.KVPacketError: 500,
    errors.UsageError: 422,
    errors.DocumentError: 422,
    errors.ContextOverflowError: 422,
    errors.LevelUnavailableError: 422,
    errors.NotFoundError: 404,
    errors.ModelError: 503,
    errors.UnsupportedModelError: 503,
    errors.ModelMismatchError: 503,
    errors.AdapterError: 503,
    errors.QualityError: 503,
    errors.CodecError: 500,
    errors.CorruptRecordError: 500,
    errors.TruncatedRecordError: 500,
    errors.UnsupportedFormatError: 500,
    errors.StoreError: 500,
    errors.StoreLockedError: 503,
    errors.StoreFullError: 507,
    errors.CapReachedError: 507,
    errors.ReadOnlyError: 500,
    errors.StoreCorruptError: 500,
    errors.BundleError: 500,
    errors.SwapFailedError: 500,
    errors.CancelledError: 499,
    errors.IncompleteUpsertError: 500,  # of an index in LangChain: no route raises it
    ShuttingDownError: 503,
    asyncio.QueueFull: 429,
    RuntimeError: 500,
}


def made(kind):
    arguments = {
        errors.DocumentError: ("d1", "the reason"),
        errors.IncompleteUpsertError: ([], {"d1": "the reason"}),
        ShuttingDownError: (),
    }
    return kind(*arguments.get(kind, ("the reason",)))


def test_the_table_is_complete():
    ours = [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.KVPacketError)
    ]
    assert set(ours) <= STATUS.keys()


@pytest.mark.parametrize("kind", STATUS, ids=lambda kind: kind.__name__)
def test_an_error_has_its_status_and_its_message_or_none_of_it(kind):
    problem = problem_of(made(kind))
    assert problem.status == STATUS[kind]
    if kind is not ShuttingDownError:
        assert ("the reason" in problem.detail) == (problem.status != 500)
    assert problem.detail
    assert problem.type.startswith("urn:kvpacket-store:problem:")
    assert [*problem.to_dict()] == ["type", "title", "status", "detail"]
    assert ("Retry-After" in problem.headers) == (problem.status in (429, 503))
