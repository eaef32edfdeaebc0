"""What the server says to its log: lines with request ids, and nothing that users wrote."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from .request_record import current_record

__all__ = ["LineFormatter", "log_config", "log_fault"]

_log = logging.getLogger("kvpacket_store.server")
_OURS = ("kvpacket_store", "uvicorn", "asyncio")


class LineFormatter(logging.Formatter):
    """One line a record: text, or a JSON object.

    Of an exception its type and the places in the code are written, never its message: that may
    quote a document. ``extra={"fields": {…}}`` adds members.

    Parameters
    ----------
    as_json : bool
        Write JSON.
    """

    def __init__(self, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        members = self._members(record)
        if self._as_json:
            return json.dumps(members, default=str)
        time, level, said = members.pop("time"), members.pop("level"), members.pop("message")
        del members["logger"]
        rest = "".join(f" {name}={'-' if v is None else v}" for name, v in members.items())
        return f"{time} {level} {said}{rest}".replace("\n", "\\n")

    def _members(self, record: logging.LogRecord) -> dict[str, Any]:
        at = current_record()
        members = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": None if at is None else at.request_id,
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            members["fault"] = type(record.exc_info[1]).__name__
            members["at"] = _places(record.exc_info[2])
        return members


class _StderrHandler(logging.Handler):
    """Writes to what ``sys.stderr`` is then: whoever replaces it gets the lines."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def log_config(as_json: bool) -> dict[str, Any]:
    """Return the ``logging.config`` of a server process: everything goes to stderr."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": LineFormatter, "as_json": as_json}},
        "handlers": {"stderr": {"()": _StderrHandler, "formatter": "lines"}},
        "loggers": {name: {"handlers": ["stderr"], "level": "INFO"} for name in _OURS},
    }


def log_fault(what: str, error: BaseException) -> None:
    """Log an error that is nobody's who asked: its type, and where it was raised."""
    _log.error("%s: %s at %s", what, type(error).__name__, _places(error.__traceback__))


def _places(trace: TracebackType | None) -> str:
    frames = traceback.extract_tb(trace, limit=-4)
    return " < ".join(f"{f.filename.rpartition('/')[2]}:{f.lineno}" for f in reversed(frames))
