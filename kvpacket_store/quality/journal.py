"""Items that are done, kept while the rest runs: what was interrupted goes on from there."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import IO, Any, Self

from kvpacket_store.errors import UsageError

__all__ = ["Journal"]


class Journal:
    """A JSONL file of results by key. A line that was cut is done again.

    Parameters
    ----------
    path : Path or None
        None keeps nothing.

    Examples
    --------
    >>> with Journal(None) as journal:
    ...     journal.put("a", {"x": 1})
    ...     journal.get("a"), journal.get("b")
    ({'x': 1}, None)
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._done: dict[str, Any] = {} if path is None else _read(path)
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def __len__(self) -> int:
        return len(self._done)

    def get(self, key: str) -> Any:
        """Return what was done under a key, or None."""
        return self._done.get(key)

    def put(self, key: str, result: Any) -> None:
        """Keep a result; it is on its way to the disk when this returns."""
        self._done[key] = result
        if self._path is None:
            return
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("a")
                self._file.write("\n")  # a line that was cut ends here
            self._file.write(json.dumps({"key": key, "result": result}) + "\n")
            self._file.flush()
        except OSError as error:
            raise UsageError(
                f"{self._path} cannot be written ({error.strerror}); name another with --out"
            ) from error

    def forget(self) -> None:
        """Delete the file: all is done."""
        if self._path is not None:
            self.__exit__()
            self._file = None
            self._path.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    done: dict[str, Any] = {}
    if path.is_file():
        for line in path.read_text().splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                row = json.loads(line)
                done[row["key"]] = row["result"]
    return done
