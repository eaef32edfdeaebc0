"""File names to media types."""

from __future__ import annotations

from pathlib import PurePath

__all__ = ["media_type_of"]

_BY_SUFFIX = {
    ".txt": "text/plain",
    ".text": "text/plain",
    ".log": "text/plain",
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    ".rst": "text/x-rst",
    ".tex": "text/x-tex",
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".htm": "text/html",
    ".html": "text/html",
    ".xhtml": "text/html",
    ".pdf": "application/pdf",
    ".jsonl": "application/jsonl",
    ".ndjson": "application/jsonl",
    ".json": "application/json",
    ".xml": "application/xml",
}
_CODE_SUFFIXES = {
    "python": ".py .pyi .pyw",
    "c": ".c .h",
    "c++": ".cc .cpp .cxx .hh .hpp .hxx",
    "csharp": ".cs",
    "clojure": ".clj",
    "css": ".css .scss",
    "cuda": ".cu .cuh",
    "dart": ".dart",
    "elixir": ".ex .exs",
    "erlang": ".erl",
    "go": ".go",
    "haskell": ".hs",
    "ini": ".ini .cfg",
    "java": ".java",
    "javascript": ".js .jsx .cjs .mjs",
    "julia": ".jl",
    "kotlin": ".kt .kts",
    "lua": ".lua",
    "ocaml": ".ml .mli",
    "perl": ".pl .pm",
    "php": ".php",
    "protobuf": ".proto",
    "r": ".r",
    "ruby": ".rb",
    "rust": ".rs",
    "scala": ".scala",
    "shell": ".sh .bash .zsh",
    "sql": ".sql",
    "swift": ".swift",
    "toml": ".toml",
    "typescript": ".ts .tsx",
    "yaml": ".yaml .yml",
    "zig": ".zig",
}
_BY_SUFFIX |= {
    suffix: f"text/x-{language}"
    for language, suffixes in _CODE_SUFFIXES.items()
    for suffix in suffixes.split()
}
_BY_NAME = {"makefile": "text/x-makefile", "dockerfile": "text/x-dockerfile"}


def media_type_of(name: str) -> str | None:
    """Return the media type that a file's name tells, ``None`` where it tells nothing.

    Examples
    --------
    >>> media_type_of("src/tree.PY"), media_type_of("notes.md"), media_type_of("core")
    ('text/x-python', 'text/markdown', None)
    """
    path = PurePath(name)
    return _BY_SUFFIX.get(path.suffix.lower()) or _BY_NAME.get(path.name.lower())
