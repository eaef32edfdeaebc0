"""Where definitions begin in source code, so that cuts fall between them."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

__all__ = ["code_blocks", "python_definitions"]

# A line that is not indented, behind an empty one; a closing bracket begins nothing.
_BLOCK = re.compile(r"\n[^\S\n]*\n(?=[^\s)}\]])")
_NEWLINE = re.compile(r"\n")
_LAYOUT = (tokenize.NEWLINE, tokenize.NL, tokenize.COMMENT, tokenize.ENCODING)


def code_blocks(text: str) -> list[int]:
    r"""Return the offsets of unindented lines behind empty ones: definitions, in most languages.

    Examples
    --------
    >>> code_blocks("int f() {\n\n  return 1;\n\n}\n\nint g();\n")
    [27]
    """
    return [block.end() for block in _BLOCK.finditer(text)]


def python_definitions(text: str) -> tuple[list[int], list[int]]:
    r"""Return where top-level definitions begin, and where those and the ones in classes do.

    Decorators and the comment lines right above belong to a definition. Behind a syntax error the
    rule for other languages takes over, so that the cuts before it stay what they are.

    Examples
    --------
    >>> python_definitions("import os\nclass A:\n    @final\n    def f(self): ...\n")
    ([10], [10, 19])
    """
    starts = [0] + [newline.end() for newline in _NEWLINE.finditer(text)]
    top_level: list[int] = []
    in_classes: list[int] = []
    last_row = 1
    try:
        for row, depth in _definition_rows(text):
            last_row = row
            offset = starts[_first_comment_row(text, starts, row) - 1]
            if depth == 0:
                top_level.append(offset)
            in_classes.append(offset)
    except (tokenize.TokenError, SyntaxError):
        rest = [offset for offset in code_blocks(text) if offset > starts[last_row - 1]]
        top_level += rest
        in_classes += rest
    return top_level, in_classes


def _definition_rows(text: str) -> Iterator[tuple[int, int]]:
    """Yield line (from 1) and depth (0 or 1) of definitions, or of their first decorators."""
    depth, decorator_row, is_class, is_statement_start = 0, 0, False, True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.INDENT:
            depth += 1
        elif token.type == tokenize.DEDENT:
            depth -= 1
        elif token.type in _LAYOUT:
            is_statement_start = is_statement_start or token.type == tokenize.NEWLINE
        elif is_statement_start:
            is_statement_start = False
            if token.string == "@":
                decorator_row = decorator_row or token.start[0]
                continue
            if depth == 0:
                is_class = token.string == "class"
            is_definition = token.string in ("def", "class", "async")
            if is_definition and (depth == 0 or (depth == 1 and is_class)):
                yield decorator_row or token.start[0], depth
            decorator_row = 0


def _first_comment_row(text: str, starts: list[int], row: int) -> int:
    while row > 1 and text[starts[row - 2] : starts[row - 1]].lstrip().startswith("#"):
        row -= 1
    return row
