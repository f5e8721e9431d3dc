"""Text to checked cache joins, with errors that show the place and a likely cure."""

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from grammar import CACHEJOIN
from pequod.errors import BadRequest, JoinError, JoinSyntaxError
from pequod.joins.join import CHECK, PUSH, SNAPSHOT, CacheJoin, Source, checked
from pequod.joins.pattern import Pattern

MAX_TEXT = 64 * 1024

_PARSER = Lark(CACHEJOIN, parser="lalr", lexer="contextual", propagate_positions=True)

_OPERATORS = ("copy", "check", "count", "sum", "min", "max", "avg")
_SPOKEN = {
    "KEY": "a key pattern like p|<poster>|<time>",
    "EQUAL": "'='",
    "SEMICOLON": "';'",
    "SECONDS": "a number of seconds",
    "NAME": "a name like timeline:",
    "$END": "the end of the text",
}


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
    try:
        tree = _PARSER.parse(text)
    except UnexpectedInput as error:
        raise _syntax_error(text, error) from error
    return [_join(text, node) for node in tree.children if isinstance(node, Tree)]


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
    try:
        return checked(CacheJoin(name, output, tuple(sources), maintenance, seconds))
    except JoinError as error:
        called = f"join {name}" if name else f"join on {output.text}"
        raise JoinError(f"line {node.meta.line}, {called}: {error}") from error


def _tokens(node: Tree[Token]) -> list[Token]:
    return list(node.scan_values(lambda value: isinstance(value, Token)))


def _pattern(text: str, token: Token) -> Pattern:
    try:
        return Pattern.parse(str(token))
    except JoinError as error:
        raise _shown(text, token.line or 1, token.column or 1, str(error)) from error


def _syntax_error(text: str, error: UnexpectedInput) -> JoinSyntaxError:
    if isinstance(error, UnexpectedToken):
        found = error.token
        at_end = found.type == "$END"
        expected = error.accepts or error.expected
        said = "the text ends too early" if at_end else f"unexpected {_clipped(found)!r}"
    else:
        assert isinstance(error, UnexpectedCharacters), error
        at_end = False
        found = Token("", _word_at(text, error.pos_in_stream or 0))
        expected = error.allowed
        said = f"unexpected {_clipped(found)!r}"
    line, column = (_end_of(text)) if at_end else (error.line, error.column)
    said += f"; expected {_spoken(set(expected or ()))}"
    if cure := _cure(str(found), set(expected or ())):
        said += f". {cure}"
    return _shown(text, line, column, said)


def _shown(text: str, line: int, column: int, said: str) -> JoinSyntaxError:
    """The error with its line and a caret under the place."""
    shown = (text.split("\n")[line - 1 : line] or [""])[0]
    start = max(0, column - 60)
    window = shown[start : start + 100].replace("\t", " ")
    caret = " " * (column - 1 - start) + "^"
    return JoinSyntaxError(
        f"line {line}, column {column}: {said}\n  {window}\n  {caret}", line, column
    )


def _end_of(text: str) -> tuple[int, int]:
    lines = text.rstrip().split("\n")
    return len(lines), len(lines[-1]) + 1


def _word_at(text: str, place: int) -> str:
    return (text[place:].split(maxsplit=1) or [""])[0]


def _clipped(word: str) -> str:
    return word if len(word) <= 30 else word[:27] + "..."


def _spoken(expected: set[str]) -> str:
    """The expected terminals in words, most telling first."""
    words = [_SPOKEN[name] for name in _SPOKEN if name in expected]
    words += [word for word in _OPERATORS if word.upper() in expected]
    words += [
        word for word in ("push", "pull", "snapshot", "eager", "lazy") if word.upper() in expected
    ]
    return " or ".join(words) if words else "nothing more"


def _cure(found: str, expected: set[str]) -> str:
    word = found.lower()
    if "SECONDS" in expected:
        return "Say how long a snapshot may be used, as in snapshot 30."
    if "<" in found or ">" in found or any(mark in found for mark in "{}[]$:"):
        return "Slots are written <user> or <time:10>, joins are parted by ';'."
    if "COPY" in expected and "|" in found:
        return "Every source starts with its operator, as in copy p|<poster>|<time>."
    if "COPY" in expected and word:
        near = [name for name in _OPERATORS if name.startswith(word[:2])]
        return f"Did you mean {near[0]}?" if near else f"Operators are {', '.join(_OPERATORS)}."
    if "EQUAL" in expected:
        return "A join is written output = sources; slots are written <user>, without spaces."
    if "KEY" in expected:
        return "Slots are written <user>."
    return ""
