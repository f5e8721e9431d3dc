"""The language: what is read, what is refused, and what the refusal says."""

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pequod.errors import BadRequest, JoinError, JoinSyntaxError, PequodError
from pequod.joins.join import CacheJoin
from pequod.joins.parser import MAX_TEXT, parse

QUICK = settings(max_examples=300, deadline=None, derandomize=True)

TIMELINE = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;"

# The text, and the canonical text of its joins.
READ = {
    "": [],
    " \n\t": [],
    ";;": [],
    "// only a comment": [],
    "t|<a> = copy p|<a>": ["t|<a> = copy p|<a>;"],
    "t|<a> = copy p|<a>;": ["t|<a> = copy p|<a>;"],
    ";; t|<a> = copy p|<a>;;;": ["t|<a> = copy p|<a>;"],
    "t|<a>=copy p|<a>;u|<a>=sum t|<a>": ["t|<a> = copy p|<a>;", "u|<a> = sum t|<a>;"],
    "t|<a>\n=\ncopy\r\n\tp|<a>\n;": ["t|<a> = copy p|<a>;"],
    "// a\nt|<a> // b = ;\n= copy// c\np|<a>//d": ["t|<a> = copy p|<a>;"],
    "name: t|<a> = copy p|<a>": ["t|<a> = copy p|<a>;"],
    "t|<a> = push copy p|<a>": ["t|<a> = copy p|<a>;"],
    "t|<a> = pull copy p|<a>": ["t|<a> = pull copy p|<a>;"],
    "t|<a> = snapshot 30 copy p|<a>": ["t|<a> = snapshot 30 copy p|<a>;"],
    "t|<a> = snapshot 0.50 copy p|<a>": ["t|<a> = snapshot 0.5 copy p|<a>;"],
    "t|<a> = snapshot .5 copy p|<a>": ["t|<a> = snapshot 0.5 copy p|<a>;"],
    "t|<a> = eager copy p|<a> lazy check s|<a>": ["t|<a> = copy p|<a> check s|<a>;"],
    "t|<a> = lazy copy p|<a> eager check s|<a>": ["t|<a> = lazy copy p|<a> eager check s|<a>;"],
    "\ufefft|<a> = copy p|<a>": ["t|<a> = copy p|<a>;"],
    "total| = count p|<a>": ["total| = count p|<a>;"],
    "copy|<a> = copy copyright|<a> check check|<a>": [
        "copy|<a> = copy copyright|<a> check check|<a>;"
    ],
    "t|<é>|日 = copy p|<é>": ["t|<é>|日 = copy p|<é>;"],
    "t|{a}|<a:3> = copy p|[x]/<a>": ["t|{a}|<a:3> = copy p|[x]/<a>;"],
    TIMELINE: [TIMELINE],
}


@pytest.mark.parametrize("text", READ)
def test_what_is_read(text):
    joins = parse(text)
    assert [join.text for join in joins] == READ[text]
    for join in joins:
        assert parse(join.text) == [replace(join, name="")]


@pytest.mark.parametrize("operator", ["copy", "check", "count", "sum", "min", "max", "avg"])
def test_operators(operator):
    other = "copy" if operator == "check" else "check"
    [join] = parse(f"t|<a> = {operator} p|<a> {other} s|<a>")
    assert join.sources[0].operator == operator
    assert [source.lazy for source in join.sources] == [operator == "check", other == "check"]


def test_names():
    joins = parse("a-1: t|<a> = copy p|<a>; _b:\nt|<a> = copy p|<a>; c:t|<a> = copy p|<a>")
    assert [(join.name, join.output.literal_head) for join in joins] == [
        ("a-1", "t|"),
        ("_b", "t|"),
        ("", "c:t|"),  # no space after the colon: it is part of the key
    ]


def test_maintenance():
    joins = parse("t|<a> = snapshot 1.25 copy p|<a>; t|<a> = pull copy p|<a>; t|<a> = copy p|<a>")
    assert [(join.maintenance, join.seconds) for join in joins] == [
        ("snapshot", 1.25),
        ("pull", 0.0),
        ("push", 0.0),
    ]


@pytest.mark.parametrize("seconds", ["999999999", "1234567.5", "0.00001", "0.1", "007"])
def test_seconds_stay_exact(seconds):
    [join] = parse(f"t|<a> = snapshot {seconds} copy p|<a>")
    assert join.seconds == float(seconds)
    assert parse(join.text) == [join]


OPERATOR_FIRST = "Every source starts with its operator, as in copy p|<poster>|<time>."
SLOTS = "Slots are written <user> or <time:10>"
SECONDS = "expected a number of seconds. Say how long a snapshot may be used, as in snapshot 30."

# The text with a caret before the place, and parts of the message.
MISPLACED = [
    ("t|<us ^er> = copy p|<user>", ["unexpected 'er>'; expected '='", SLOTS, "without spaces"]),
    ("t|<user>|< ^time> = copy p|<user>", ["unexpected 'time>'", SLOTS]),
    ("t|<user>|<time: ^10> = copy p|<user>", ["unexpected '10>'", SLOTS]),
    ("t|{us ^er} = copy p|{user}", ["unexpected 'er}'", SLOTS]),
    ("t|<user> = copy p|<us^=er>", ["unexpected '='", SLOTS]),
    ("t|<user> = copy p|[us ^er]", ["unexpected 'er]'", SLOTS]),
    ("t|<user> = copy p| ^:user", ["unexpected ':user'", SLOTS]),
    ("t|<user> = copy p| ^$user", ["unexpected '$user'", SLOTS]),
    ("t|<user> = ^p|<user>", ["unexpected 'p|<user>'", "expected copy, check", OPERATOR_FIRST]),
    ("t|<user> = copy s|<user>\n  ^p|<user>", ["unexpected 'p|<user>'", OPERATOR_FIRST]),
    ("t|<user> = eager ^p|<user>", ["expected copy, check", "max or avg. ", OPERATOR_FIRST]),
    ("t|<user> = ^copyright|<user>", ["unexpected 'copyright|<user>'", OPERATOR_FIRST]),
    ("t|<user> = pull^;", ["unexpected ';'", OPERATOR_FIRST]),
    ("t|<user> =^", ["the text ends too early", OPERATOR_FIRST]),
    ("t|<user> = ^cpoy p|<user>", ["unexpected 'cpoy'", "Did you mean copy?"]),
    ("t|<user> = ^COPY p|<user>", ["unexpected 'COPY'", "Did you mean copy?"]),
    ("t|<user> = ^maximum p|<user>", ["unexpected 'maximum'", "Did you mean max?"]),
    ("t|<user> = ^pul copy p|<user>", ["Did you mean pull?"]),
    ("t|<user> = check s|<user> ^cuont p|<user>", ["Did you mean count?"]),
    ("t|<user> = ^select p|<user>", ["Operators are copy, check, count, sum, min, max, avg."]),
    ("t|<user> = pull ^push copy p|<user>", ["The maintenance is said once, right after '='."]),
    ("t|<user> = copy p|<user> ^pull", ["The maintenance is said once, right after '='."]),
    ("t|<user> = eager ^lazy copy p|<user>", ["A source is either eager or lazy."]),
    ("t|<user> ^copy p|<user>", ["unexpected 'copy'; expected '='. An '=' parts the output"]),
    ("t|<user>^", ["the text ends too early; expected '='. An '=' parts the output"]),
    ("t|<user>^ // = copy p|<user>", ["the text ends too early; expected '='"]),
    ("t|<user> =^= copy p|<user>", ["unexpected '='", "A join has one '='"]),
    ("^= copy p|<user>", ["unexpected '='", "A join starts with its output"]),
    ("timeline ^: t|<user> = copy p|<user>", ["A name is a word with a colon and a space"]),
    ("9x: ^t|<user> = copy p|<user>", ["A name is a word with a colon and a space"]),
    ("t|<a> = copy p|<a>\n^u|<a> // u\n= copy q|<a>", ["A ';' parts each join from the next."]),
    ("t|<a> = copy p|<a> ^u: u|<a> = copy q|<a>", ["unexpected 'u:'", "A ';' parts each join"]),
    ("t|<user> = snapshot ^copy p|<user>", ["unexpected 'copy'", SECONDS]),
    ("t|<user> = snapshot ^-3 copy p|<user>", ["unexpected '-3'", SECONDS]),
    ("t|<user> = snapshot ^3s copy p|<user>", ["unexpected '3s'", SECONDS]),
    ("t|<user> = snapshot^", ["the text ends too early", SECONDS]),
    ("t|<user> = copy ^check s|<user>", ["unexpected 'check'", "After its operator a source"]),
    ("^copy p|<user>", ["unexpected 'copy'", "A join starts with its output"]),
    ("t|<user> = copy^", ["ends too early", "After its operator a source has a key"]),
    ("t|<user> = copy ^= p|<user>", ["unexpected '='", "After its operator a source has a key"]),
    ("t|<user> = copy ^; ", ["unexpected ';'", "After its operator a source has a key"]),
    ("t|<a> = copy p|<a> ^" + "x" * 99, [f"unexpected '{'x' * 27}...'"]),
    ("t|^<user = copy p|<user>", ["'<user' is not closed by '>'", "<user>"]),
    ("t|user^> = copy p|<user>", ["'>' closes no slot", "<user>"]),
    ("t|^<> = copy p|<user>", ["'<>' is no slot", "<user>"]),
    ("t|<user> = copy p|<user>|^<9a>", ["'<9a>' is no slot", "digit", "<user>"]),
    ("t|<user> =\n copy p|<user>|^<a-b>", ["'<a-b>' is no slot", "<user>"]),
    ("t|<user> = copy p|^<user:x>", ["'<user:x>' is no slot", "width", "<time:10>"]),
    ("t|<user> = copy p|^<user:0>", ["<user:0>", "never empty"]),
    ("t|<user> = copy p|^<user:9999>", ["<user:9999>", "too wide", "512"]),
    ("t|<a> = copy p|\0^\ud800<a>", ["'\\ud800' is a lone surrogate"]),
    ("t|<a> = copy ^p|<a>" + "x" * 508, ["513 characters", "512"]),
]


@pytest.mark.parametrize(("marked", "parts"), MISPLACED)
def test_what_cannot_be_read(marked, parts):
    before, after = marked.split("^")
    with pytest.raises(JoinSyntaxError) as caught:
        parse(before + after)
    said, _, caret = str(caught.value).rsplit("\n", 2)
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    assert (caught.value.line, caught.value.column) == (line, column)
    assert said.startswith(f"line {line}, column {column}: ")
    assert caret == " " * (column + 1) + "^"
    for part in parts:
        assert part in said
    assert "Token(" not in said


def test_the_caret_of_a_long_line():
    with pytest.raises(JoinSyntaxError) as caught:
        parse(f"t|<a> = copy p|<a>{' ' * 500}wrong\tq|<a>{' ' * 500}")
    _, shown, caret = str(caught.value).split("\n")
    assert shown[caret.index("^") :].startswith("wrong q|<a>")
    assert len(shown) < 110


# The text on line 2, and parts of the message.
SENSELESS = [
    ("t|<a> = check p|<a>", ["join on t|<a>: no value source", "copy, count, sum"]),
    ("x: t|<a> = copy p|<a> sum q|<a>", ["join x: 2 value sources", "sum q|<a>", "`check`"]),
    ("x: t|<a> = copy p|<b>", ["output slot <a> is unbound", "add <a> to a source"]),
    (
        "x: t|<a> = copy p|{a}",
        ["output slot <a> is unbound", "{a} is literal", "slots are written"],
    ),
    ("t|<a> = copy p|:a", ["<a> is unbound", ":a is literal", "<time:10>"]),
    ("t|$a = copy p|$a", ["t|$a has no slots", "$a is literal", "<user>"]),
    ("t|a = copy p|b", ["t|a has no slots", "<user> or <time:10>"]),
    ("x: t|<a:3> = copy p|<a:4>", ["join x: slot <a> has conflicting widths 3 and 4", "one width"]),
    ("t|<a><b> = copy p|<a>|<b>", ["nothing parts <a> from <b> in t|<a><b>", "<a:n>"]),
    ("<a>|t = copy p|<a>", ["<a>|t names no table", "p|<poster>|<time>"]),
    ("t|<a> = copy p<a>", ["p<a> names no table", "a bar"]),
    ("\U0010ffff|<a> = copy p|<a>", ["no key may start with '\\U0010ffff'", "another name"]),
    ("t|<a> = " + f"copy p|<a>{'x' * 400} " * 16, ["16 value sources", "...", "`check`"]),
    ("t|<a> = snapshot 0 copy p|<a>", ["snapshot 0: ", "above 0"]),
    ("t|<a> = snapshot 1000000000 copy p|<a>", ["snapshot 1e+09: ", "below 1000000000"]),
    ("t|<a> = copy p|<a>" + " check s|<a>" * 16, ["17 sources", "at most 16", "a join of its own"]),
    ("t|<a:300>|<b:300> = copy p|<a> check q|<b>", ["wider than 512", "smaller widths"]),
]


@pytest.mark.parametrize(("text", "parts"), SENSELESS)
def test_what_makes_no_sense(text, parts):
    with pytest.raises(JoinError) as caught:
        parse(f"fine: t|<a> = copy p|<a>;\n{text};\nlater|<a> = copy p|<a>")
    assert not isinstance(caught.value, JoinSyntaxError)
    said = str(caught.value)
    assert said.startswith("line 2, join ")
    for part in parts:
        assert part in said


@pytest.mark.parametrize("text", [None, 1, b"t|<a> = copy p|<a>", ["t|<a> = copy p|<a>"]])
def test_what_is_no_text(text):
    with pytest.raises(BadRequest, match=f"not {type(text).__name__}"):
        parse(text)


def test_sixteen_sources_fit():
    [join] = parse("t|<a> = copy p|<a>" + " check s|<a>" * 15)
    assert len(join.sources) == 16


def _many_slots(count: int) -> str:
    slots = "|".join(f"<a{number}>" for number in range(count))
    return f"t|{slots} = copy p|{slots}"


# Text that is long or strange, and the class of its error; None if it is fine.
HOSTILE = {
    "over 64 KB": ("x" * (MAX_TEXT + 1), JoinError),
    "over 64 KB of UTF-8": ("é" * (MAX_TEXT // 2 + 1), JoinError),
    "many joins": ("t|<a> = copy p|<a>;" * (MAX_TEXT // 19), None),
    "fifty sources": ("t|<a> = copy p|<a>" + " check s|<a>" * 49, JoinError),
    "ten thousand <": ("<" * 10_000, JoinSyntaxError),
    "ten thousand < in a source": (f"t|<a> = copy p|{'<' * 10_000}", JoinSyntaxError),
    "ten thousand <, parted": ("< " * 10_000, JoinSyntaxError),
    "five hundred <": (f"t|<a> = copy p|{'<' * 500}", JoinSyntaxError),
    "slashes": ("t|<a> = copy p|<a> q" + "/" * 60_000, JoinSyntaxError),
    "comments": ("t|<a> = copy p|<a> q" + "//\n" * 20_000, JoinSyntaxError),
    "equal signs": ("=" * 60_000, JoinSyntaxError),
    "semicolons": (";" * 60_000, None),
    "line ends": ("\n" * 60_000 + "=", JoinSyntaxError),
    "a long word": ("t|<a> = " + "copy" * 15_000, JoinSyntaxError),
    "a long name": ("n" * 60_000 + ": t|<a> = copy p|<b>", JoinError),
    "many seconds": (f"t|<a> = snapshot {'9' * 60_000} copy p|<a>", JoinError),
    "unicode": ("日本: t|<имя>|😀 = copy p|<имя>", None),
    "a digit that is none": ("t|<a²> = copy p|<a²>", JoinSyntaxError),
    "a width in other digits": ("t|<a:٣> = copy p|<a>", JoinSyntaxError),
    "names that only look alike": ("t|<ﬁ> = copy p|<fi>", JoinError),
    "null bytes": ("t|\0|<a> = copy p|\0|<a>", None),
    "only null bytes": ("\0" * 1000, JoinSyntaxError),
    "lone surrogates": ("\ud800\udfff" * 1000, JoinSyntaxError),
    "a lone surrogate in a comment": ("t|<a> = copy p|<a> // \udc80", JoinSyntaxError),
    "the last character of Unicode": ("t|<a>\U0010ffff = copy p|<a>", None),
    "a wide slot": ("t|<a:9999> = copy p|<a>", JoinSyntaxError),
    "a width of many digits": (f"t|<a:{'1' * 480}> = copy p|<a>", JoinSyntaxError),
    "85 slots": (_many_slots(85), None),
    "200 slots": (_many_slots(200), JoinSyntaxError),
    "words of Python and of regular expressions": (
        r"t|(?P<class>.*)+\|[^]<__init__>$ = copy p|<class>|<__init__>",
        None,
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_text(what):
    text, error = HOSTILE[what]
    start = time.process_time()
    if error is None:
        for join in parse(text)[:100]:
            assert not join.output.matches("t|" + "a|" * 500)
    else:
        with pytest.raises(error) as caught:
            parse(text)
        assert caught.type is error
        assert len(str(caught.value)) < 1000
        str(caught.value).encode()  # it can be printed and sent
    assert time.process_time() - start < 2


def test_a_hundred_slots():
    slots = "".join(f"<{chr(0x4E00 + number)}>|" for number in range(100))
    [join] = parse(f"t|{slots} = copy p|{slots}")
    key = "t|" + "a|" * 100
    assert join.output.fill(join.output.match(key) or {}) == key


KEYS = ["t|<a>", "p|<a>|<b:2>", "q|<c>", "t|<a><b>", "t|<a:0>", "t|<a:10>", "copyp|<a>", "é|<é>"]
KEYWORDS = ["copy", "check", "sum", "pull", "push", "snapshot", "30", ".5", "lazy", "eager"]
MARKS = ["<a>", "<", ">", "|", "=", ";", ";;", "//", "name:", ":", "{", "}", "\0", "\ud800"]
WORDS = st.sampled_from(KEYS + KEYWORDS + MARKS)


def _read_or_refused(text: str) -> None:
    try:
        joins = parse(text)
    except PequodError as error:
        str(error).encode()
        return
    for join in joins:
        assert isinstance(join, CacheJoin)
        assert parse(join.text) == [replace(join, name="")]


@QUICK
@given(st.text(st.characters(), max_size=200))
def test_any_text_is_read_or_refused(text):
    _read_or_refused(text)


@QUICK
@given(st.lists(st.tuples(WORDS, st.sampled_from([" ", " ", " ", "", "\n"])), max_size=25))
def test_any_words_are_read_or_refused(words):
    _read_or_refused("".join(word + space for word, space in words))


@QUICK
@given(st.data())
def test_a_damaged_join_is_read_or_refused(data):
    place = data.draw(st.integers(0, len(TIMELINE)))
    length = data.draw(st.integers(0, 4))
    put = data.draw(st.text("|<>:=; \n/{}ac0\0é", max_size=3))
    _read_or_refused(TIMELINE[:place] + put + TIMELINE[place + length :])
