"""Text to checked cache joins, with errors that show the place and a likely cure."""

import re
from difflib import get_close_matches
from functools import lru_cache

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput, UnexpectedToken

from grammar import CACHEJOIN
from pequod.errors import BadRequest, JoinError, JoinSyntaxError
from pequod.joins.join import CHECK, PULL, PUSH, SNAPSHOT, CacheJoin, Source, checked
from pequod.joins.pattern import Pattern, clipped

MAX_TEXT = 64 * 1024

_OPERATORS = ("copy", "check", "count", "sum", "min", "max", "avg")
_MAINTENANCE = (PUSH, PULL, SNAPSHOT)
_HURRY = ("eager", "lazy")
_KEYWORDS = {word.upper() for word in (*_OPERATORS, *_MAINTENANCE, *_HURRY)}
_SPOKEN = {
    "KEY": "a key pattern like p|<poster>|<time>",
    "EQUAL": "'='",
    "SECONDS": "a number of seconds",
    "NAME": "a name like timeline:",
    **{word.upper(): word for word in (*_OPERATORS, *_MAINTENANCE, *_HURRY)},
    "SEMICOLON": "';'",
    "$END": "the end of the text",
}

_THEN_EQUAL = re.compile(r"(?:\s|//[^\n]*+)*+=")
_OPEN_SLOT = re.compile(r"<[^<>|]*\Z")
_FOREIGN_SLOT = re.compile(r"\{\w+\}|\[\w+\]|\$\w+|:[^\W\d]\w*")

_BYTE_ORDER_MARK = "\ufeff"  # some editors start a file with it, and show nothing
_SLOTS = "Slots are written <user> or <time:10>"
_EXAMPLE = "as in t|<user> = copy p|<user>"


_PARSER = Lark(CACHEJOIN, parser="lalr", lexer="contextual", propagate_positions=True)


def parse(text: str) -> list[CacheJoin]:
    """The joins of `text` in order; a join without a name has the name "".

    >>> [join] = parse("karma|<author> = count vote|<author>|<id>|<voter>;")
    >>> join.operator, join.output.text
    ('count', 'karma|<author>')
    """
    if not isinstance(text, str):
        raise BadRequest(f"a join is text, not {type(text).__name__}")
    if len(text) > MAX_TEXT or len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT:
        raise JoinError(f"join text over {MAX_TEXT // 1024} KB; install it in several parts")
    return list(_parse(text.removeprefix(_BYTE_ORDER_MARK)))


@lru_cache(maxsize=32)  # a server of a cluster parses a join for each of its caches
def _parse(text: str) -> tuple[CacheJoin, ...]:
    _check_unicode(text)
    try:
        tree = _PARSER.parse(text)
    except UnexpectedInput as error:
        raise _syntax_error(text, error) from error
    return tuple(_join(text, node) for node in tree.children if isinstance(node, Tree))


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        before = text[: error.start]
        line, column = before.count("\n") + 1, error.start - before.rfind("\n")
        said = f"{text[error.start]!r} is a lone surrogate; a join is valid Unicode, as keys are"
        raise _shown(text, line, column, said) from error


def _join(text: str, node: Tree[Token]) -> CacheJoin:
    name = ""
    maintenance, seconds = PUSH, 0.0
    sources: list[Source] = []
    output: Pattern | None = None
    for child in node.children:
        if isinstance(child, Token):
            if child.type == "NAME":
                name = child[:-1]
            else:
                output = _pattern(text, child)
        elif child.data == "maintenance":
            words = _tokens(child)
            maintenance = str(words[0])
            seconds = float(words[1]) if maintenance == SNAPSHOT else 0.0
        else:
            *hurry, operator, key = _tokens(child)
            lazy = hurry[0] == "lazy" if hurry else operator == CHECK
            sources.append(Source(str(operator), _pattern(text, key), lazy))
    assert output is not None, "the grammar gives every join an output"
    join = CacheJoin(name, output, tuple(sources), maintenance, seconds, node.meta.line)
    try:
        return checked(join)
    except JoinError as error:
        called = f"join {clipped(name)}" if name else f"join on {clipped(output.text)}"
        said = f"line {join.line}, {called}: {error}"
        raise JoinError(said + _foreign_slot(join)) from error


def _foreign_slot(join: CacheJoin) -> str:
    """A word on the first literal that looks like another language's slot, if there is one."""
    for pattern in (join.output, *(source.pattern for source in join.sources)):
        for part in pattern.parts:
            if isinstance(part, str) and (found := _FOREIGN_SLOT.search(part)):
                return f". {clipped(found[0])} is literal: {_SLOTS[0].lower()}{_SLOTS[1:]}."
    return ""


def _tokens(node: Tree[Token]) -> list[Token]:
    return list(node.scan_values(lambda value: isinstance(value, Token)))


def _pattern(text: str, token: Token) -> Pattern:
    try:
        return Pattern.parse(str(token))
    except JoinSyntaxError as error:
        column = (token.column or 1) + error.column - 1
        raise _shown(text, token.line or 1, column, str(error)) from error


def _syntax_error(text: str, error: UnexpectedInput) -> JoinSyntaxError:
    # Each character starts some terminal of the grammar, so that only their order can be wrong.
    assert isinstance(error, UnexpectedToken), error
    token, expected = error.token, set(error.accepts or error.expected)
    if token.type == "$END":
        said, line, column = "the text ends too early", token.end_line, token.end_column
    else:
        said, line, column = f"unexpected {clipped(str(token))!r}", token.line, token.column
    said += f"; expected {_spoken(expected)}. {_cure(text, token, expected)}"
    return _shown(text, line or 1, column or 1, said)


def _shown(text: str, line: int, column: int, said: str) -> JoinSyntaxError:
    """The error with its line and a caret under the place."""
    shown = text.split("\n")[line - 1]
    start = max(0, column - 60)
    window = "".join(
        character if character.isprintable() else " " for character in shown[start : start + 100]
    )
    caret = " " * (column - 1 - start) + "^"
    return JoinSyntaxError(
        f"line {line}, column {column}: {said}\n  {window}\n  {caret}", line, column
    )


def _spoken(expected: set[str]) -> str:
    """The expected terminals in words, most telling first."""
    *words, last = [_SPOKEN[name] for name in _SPOKEN if name in expected]
    return f"{', '.join(words)} or {last}" if words else last


def _cure(text: str, token: Token, expected: set[str]) -> str:
    """What to do about a token that came while others were expected."""
    place = len(text) if token.type == "$END" else token.start_pos or 0
    if "SECONDS" in expected:
        return "Say how long a snapshot may be used, as in snapshot 30."
    if _OPEN_SLOT.search(text, max(0, place - 100), place):
        return f"{_SLOTS}, without spaces, '=' and ';'."
    if "EQUAL" in expected:
        return _cure_of_output(text, token)
    if "COPY" in expected:
        return _cure_of_source(text, token, expected)
    if "NAME" in expected:
        return f"A join starts with its output, {_EXAMPLE}."
    return "After its operator a source has a key, as in copy p|<poster>|<time>."


def _cure_of_output(text: str, token: Token) -> str:
    before = text[: token.start_pos].rstrip()
    if token.type != "$END" and (token.startswith(":") or before.endswith(":")):
        return "A name is a word with a colon and a space after it, as in timeline: t|<user>."
    if any(mark in token for mark in "{}[]$>"):
        return f"{_SLOTS}, without spaces."
    return f"An '=' parts the output from its sources, {_EXAMPLE}."


def _cure_of_source(text: str, token: Token, expected: set[str]) -> str:
    word = token.lower()
    if "SEMICOLON" in expected and (
        token.type == "NAME" or _THEN_EQUAL.match(text, token.end_pos or 0)
    ):
        return "A ';' parts each join from the next."
    if token.type == "EQUAL":
        return f"A join has one '=', {_EXAMPLE}."
    if word in _MAINTENANCE:
        return "The maintenance is said once, right after '='."
    if word in _HURRY:
        return "A source is either eager or lazy."
    words = [name for name in _SPOKEN.values() if name.upper() in expected & _KEYWORDS]
    if near := get_close_matches(word[:30], words, 1):
        return f"Did you mean {near[0]}?"
    if any(mark in token for mark in "{}[]$:") and "<" not in token:
        return f"{_SLOTS}."
    if not word or "|" in word or token.type == "SEMICOLON":
        return "Every source starts with its operator, as in copy p|<poster>|<time>."
    return f"Operators are {', '.join(_OPERATORS)}."
