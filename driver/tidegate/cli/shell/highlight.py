"""Colors statements while they are typed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from pygments.lexer import RegexLexer, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text

from tidegate.cli.shell.complete import KEYWORDS


class StatementLexer(RegexLexer):
    """Tokens of Spark's SQL with the words of materialized tables, and of commands of the shell.

    The lexers of Pygments take double quotes for names, and know none of these words.
    """

    name = "Tidegate SQL"
    flags = re.MULTILINE | re.IGNORECASE
    tokens: ClassVar[dict[str, list[Any]]] = {
        "root": [
            (r"\s+", Text),
            (r"--[^\n]*", Comment.Single),
            (r"/\*", Comment.Multiline, "comment"),
            (r"[rR]'[^']*'?|[rR]\"[^\"]*\"?", String),
            (r"'(?:[^'\\]|\\.|'')*'?", String.Single),
            (r'"(?:[^"\\]|\\.|"")*"?', String.Double),
            (r"`(?:[^`]|``)*`?", Name),
            (r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?[a-zA-Z]{0,2}\b", Number),
            (words(KEYWORDS, prefix=r"\b", suffix=r"\b"), Keyword),
            (r"[^\W\d]\w*(?=\s*\()", Name.Function),
            (r"\w+", Name),
            (r"[-+*/%<>=!|&^~:]+", Operator),
            (r".", Punctuation),
        ],
        "comment": [
            (r"/\*", Comment.Multiline, "#push"),
            (r"\*/", Comment.Multiline, "#pop"),
            (r"[^*/]+|[*/]", Comment.Multiline),
        ],
    }

    def get_tokens_unprocessed(
        self, text: str, stack: Iterable[str] = ("root",)
    ) -> Iterator[tuple[int, Any, str]]:
        """Yield positions, kinds and texts of tokens; a command of the shell is one token."""
        if text.lstrip().startswith(("!", "\\")):
            yield 0, Name.Builtin, text
        else:
            yield from super().get_tokens_unprocessed(text, stack)
