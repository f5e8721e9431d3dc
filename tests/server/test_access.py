"""Tokens: the file they come from, their roles and prefixes, on both protocols."""

from hashlib import sha256

import pytest

from pequod.config import ServerConfig
from pequod.errors import BadRequest, Forbidden, Unauthorized
from pequod.keys import END, prefix
from pequod.server import Server
from pequod.server.access import ADMIN, READ, ROLES, Access, Principal, hash_of, read_tokens
from pequod.server.service import CLAIM_ROLE_FOR
from pequod.server.service import ROLE_FOR as CACHE_ROLE_FOR
from tests.server.helpers import Web, Wire, lines_of, serving

ROLE_FOR = CACHE_ROLE_FOR | CLAIM_ROLE_FOR

SECRETS = {role: f"secret-of-{role}-long-enough" for role in ROLES}
CONFINED = "secret-of-the-confined-admin"

# A call of each method that the cache would answer, and what it touches.
CALLS = {
    "get": ("t|a",),
    "scan": ("t|", "t}"),
    "count": ("t|", "t}"),
    "digest": ("t|", "t}"),
    "explain": ("t|", "t}"),
    "joins": (),
    "stats": (),
    "put": ("t|a", "1"),
    "put_many": ((("t|a", "1"), ("p|b", "2")),),
    "remove": ("t|a",),
    "remove_range": ("t|", "t}"),
    "add_join": ("t|<a>|x = copy p|<a>;",),
    "drop_join": ("t#1",),
    "read": ("t|", "t}"),
    "write": ((("t|a", "1"), ("p|b", None)),),
    "cluster": (),
    "move": ("prepare", "a map"),
}


@pytest.fixture
def tokens(tmp_path):
    """The path of a token file."""
    entries = [
        f'[[token]]\nname = "{role}"\nrole = "{role}"\ntoken = "{secret}"\n'
        for role, secret in SECRETS.items()
    ]
    entries.append(
        '[[token]]\nname = "confined"\nrole = "admin"\nprefixes = ["t|", "p|"]\n'
        f'sha256 = "{sha256(CONFINED.encode()).hexdigest()}"\n'
    )
    path = tmp_path / "tokens.toml"
    path.write_text("\n".join(entries))
    return str(path)


async def outcomes(server, token, calls):
    """The code of the error of each call, or None, by both protocols."""
    found = []
    async with await Wire.open(server) as wire, await Web.open(server) as web:
        assert await wire.call("auth", token) in ROLES
        for name, args in calls:
            wire.send((1, name, *args))
            _, error, _ = await wire.reply()
            answer = (await web.rpc([name, *args], Authorization=f"Bearer {token}")).json
            codes = [error and error["code"], answer.get("error") and answer["error"]["code"]]
            found.append(codes)
    return found


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_what_it_may(run, tokens, role):
    assert CALLS.keys() == ROLE_FOR.keys()
    allowed = ROLES[: ROLES.index(role) + 1]

    async def work():
        async with serving(tokens=tokens) as server:
            found = await outcomes(server, SECRETS[role], CALLS.items())
            for name, codes in zip(CALLS, found):
                refused = [code == "forbidden" for code in codes]
                assert refused == [ROLE_FOR[name] not in allowed] * 2, name

    run(work())


WIDE = ("explain", "joins", "stats", "cluster", "move")  # they tell of all, or change all
INSIDE = [(name, args) for name, args in CALLS.items() if name not in WIDE]
OUTSIDE = [
    ("cluster", ()),
    ("move", ("prepare", "a map")),
    ("explain", ("t|", "t}")),  # it tells of sources anywhere
    ("joins", ()),
    ("stats", ()),
    ("get", ("x|a",)),
    ("get", ("t",)),
    ("get", ("t}",)),  # just after the end of t|
    ("get", ("s|\U0010fffe",)),
    ("put", ("x|a", "1")),
    ("put", ("t}", "1")),
    ("remove", ("x|a",)),
    ("remove", ("p}",)),
    ("scan", ("", END)),
    ("scan", ("t|", "t}\0")),
    ("scan", ("t", "t}")),
    ("scan", ("p|", "t}")),  # both ends are ours, what lies between is not
    ("count", ("t|z", "u")),
    ("count", ("x", "y")),
    ("read", ("t", "t}")),
    ("read", ("", END, 1, True, None, 60)),
    ("digest", ("p|", "t}")),
    ("timed", ("get", "x|a")),
    ("timed", ("stats",)),
    ("write", ((("t|a", "9"), ("x|a", "9")),)),
    ("write", ((("x|a", None),),)),
    ("remove_range", ("p|", "t}")),
    ("remove_range", ("", END)),
    ("put_many", ((("t|a", "9"), ("x|a", "9")),)),
    ("put_many", ((("t|a", "9"), ("t}", "9")),)),
    ("add_join", ("t|<a>|y = copy x|<a>;",)),
    ("add_join", ("x|<a>|y = copy p|<a>;",)),
    ("add_join", ("t|<a>|y = check x|<a> copy p|<a>;",)),
    ("drop_join", ("foreign",)),
    ("drop_join", ("half",)),
    ("drop_join", ("no such",)),  # or its error would name those there are
]


def test_prefixes_confine_every_method(run, tokens):
    foreign = "foreign: x|<a>|y = copy z|<a>; half: t|<a>|h = copy z|<a>;"

    async def work():
        async with serving(tokens=tokens) as server:
            server.cache.add_join(foreign)
            server.cache.put_many([("x|a", "foreign"), ("t}", "foreign"), ("t|a", "ours")])
            everything = server.cache.scan("", END)
            for (name, args), codes in zip(OUTSIDE, await outcomes(server, CONFINED, OUTSIDE)):
                assert codes == ["forbidden"] * 2, (name, args)
            assert server.cache.scan("", END) == everything
            assert len(server.cache.joins()) == 2
            for (name, args), codes in zip(INSIDE, await outcomes(server, CONFINED, INSIDE)):
                # By the second protocol, the join has been dropped already.
                assert codes in ([None, None], [None, "unknown_join"], [None, "forbidden"]), name
                assert codes == [None, None] or name == "drop_join", (name, args)

    run(work())


def test_what_is_refused_tells_nothing(run, tokens):
    async def work():
        async with serving(tokens=tokens) as server, await Wire.open(server) as wire:
            server.cache.add_join("hidden: x|<a>|y = copy z|<a>;")
            await wire.call("auth", CONFINED)
            for number, (name, args) in enumerate(OUTSIDE, 1):
                wire.send((number, name, *args))
                _, error, _ = await wire.reply()
                assert "hidden" not in error["message"]
                assert "x|" not in error["message"]

    run(work())


def test_wrong_arguments_of_a_confined_token(run, tokens):
    calls = [
        ("get", ()),
        ("get", (5,)),
        ("put", ("t|a", 5)),
        ("scan", ("t|",)),
        ("put_many", (5,)),
        ("add_join", (5,)),
        ("drop_join", ()),
        ("get", ("t|a", 1)),
    ]

    async def work():
        async with serving(tokens=tokens) as server:
            for codes in await outcomes(server, CONFINED, calls):
                assert codes[0] == codes[1]
                assert codes[0] in ("bad_request", "bad_key", "bad_value")

    run(work())


def test_no_token_and_wrong_tokens(run, tokens):
    async def work():
        async with serving(tokens=tokens) as server:
            async with await Wire.open(server) as wire:
                for name, args in CALLS.items():
                    assert await wire.call(name, *args) == "unauthorized", name
                assert await wire.call("no_such") == "unauthorized"
                for token in ("wrong", "", None, 5, b"bytes", ("a",), SECRETS[READ] + " "):
                    assert await wire.call("auth", token) == "unauthorized", token
                assert await wire.call("auth") == "unauthorized"
                assert await wire.call("auth", SECRETS[READ]) == READ
                assert await wire.call("get", "k") is None
                assert await wire.call("auth", "wrong") == "unauthorized"
                assert await wire.call("put", "k", "v") == "forbidden"
                assert await wire.call("auth", SECRETS[ADMIN]) == ADMIN
                assert await wire.call("put", "k", "v") is None
            async with await Web.open(server) as web:
                for header in (
                    "",
                    "Bearer",
                    "Bearer wrong",
                    f"Basic {SECRETS[READ]}",
                    "Bearer \xff",
                ):
                    for target in (
                        "/v1/get?key=k",
                        "/v1/stats",
                        "/metrics",
                        "/v1/watch",
                        "/openapi.json",
                    ):
                        answer = await web.get(target, Authorization=header)
                        assert (answer.status, answer.code) == (401, "unauthorized")
                        assert answer.headers["www-authenticate"] == "Bearer"
                assert (await web.get("/healthz")).status == 200
                answer = await web.get("/v1/get?key=k", Authorization=f"bearer  {SECRETS[READ]}")
                assert answer.json == "v"

    run(work())


def test_secrets_are_nowhere_to_be_read(run, tokens, caplog):
    caplog.set_level("DEBUG")
    wrong = "a-wrong-secret-that-is-long"

    async def work():
        said = b""
        secrets = {"tokens": tokens, "token": "the-token-of-tests"}
        async with (
            serving(**secrets) as server,
            await Wire.open(server) as wire,
            await Web.open(server) as web,
        ):
            wire.send((1, "auth", wrong), (2, "auth", SECRETS[ADMIN]), (3, "stats"), (4, "auth"))
            said += repr(await wire.replies(4)).encode()
            wire.send((0, "auth", SECRETS[READ]))
            said += await wire.rest()
            for token in (wrong, SECRETS[READ], SECRETS[ADMIN]):
                for target in ("/v1/stats", "/metrics", "/nowhere", "/v1/get"):
                    said += (await web.get(target, Authorization=f"Bearer {token}")).body
        for secret in (*SECRETS.values(), wrong, CONFINED, "the-token-of-tests"):
            assert secret not in caplog.text
            assert secret.encode() not in said
            assert hash_of(secret).encode() not in said

    run(work())
    assert len(lines_of(caplog)) == 1


TOKEN_FILES = [
    ("", "a [[token]] for each token"),
    ("x = 1", "a [[token]] for each token"),
    ("token = 5", "a [[token]] for each token"),
    ("token = [5]", "token 1: it is not a table"),
    ('token = ["x"]', "token 1: it is not a table"),
    ("[[token", "not TOML"),
    ("[[token]]", "it has no name"),
    ("[[token]]\nname = 5", "it has no name"),
    ('[[token]]\nname = "a"', "role None is not one of read, write, admin"),
    ('[[token]]\nname = "a"\nrole = "root"', "role 'root'"),
    ('[[token]]\nname = "a"\nrole = ["read"]', "role ['read']"),
    ('[[token]]\nname = "a"\nrole = "read"', "either token or sha256"),
    ('[[token]]\nname = "a"\nrole = "read"\ntoken = "short"', "16 characters or more"),
    ('[[token]]\nname = "a"\nrole = "read"\ntoken = 1234567890123456', "16 characters or more"),
    ('[[token]]\nname = "a"\nrole = "read"\nsha256 = "x"', "64 hexadecimal digits"),
    (f'[[token]]\nname = "a"\nrole = "read"\nsha256 = "{"A" * 64}"', "64 hexadecimal digits"),
    ('[[token]]\nname = "a"\nrole = "read"\nprefix = "x"', "'prefix' is no part of a token"),
    ('[[token]]\nname = "a"\nrole = "read"\nprefixes = "x"', "a list of texts"),
    ('[[token]]\nname = "a"\nrole = "read"\nprefixes = [1]', "a list of texts"),
    ('[[token]]\nname = "a"\nrole = "read"\nprefixes = []', "leave it out if all keys"),
    (2 * '[[token]]\nname = "a"\nrole = "read"\ntoken = "sixteen-letters!"\n', "token 2: the same"),
]


@pytest.mark.parametrize(("text", "message"), TOKEN_FILES)
def test_errors_of_a_token_file(text, message, tmp_path):
    with pytest.raises(BadRequest) as error:
        read_tokens(text)
    assert message in str(error.value)


def test_a_server_says_which_file_is_wrong(tmp_path):
    path = tmp_path / "tokens.toml"
    with pytest.raises(BadRequest, match=r"tokens: .*tokens\.toml: .*No such file"):
        Server(ServerConfig(tokens=str(path)))
    path.write_bytes(b"\xff")
    with pytest.raises(BadRequest, match="not UTF-8"):
        Server(ServerConfig(tokens=str(path)))
    path.write_text("[[token]]")
    with pytest.raises(BadRequest, match=r"tokens: .*tokens\.toml: token 1: it has no name"):
        Server(ServerConfig(tokens=str(path)))


def test_a_principal():
    principal = Principal("web", READ, (prefix("t|"), prefix("p|ann|")))
    assert principal.is_confined
    principal.check_reach("scan", [prefix("t|"), prefix("t|ann|"), prefix("p|ann|")])
    for keys in (prefix(""), prefix("t"), prefix("p|"), prefix("p|annie|")):
        with pytest.raises(
            Forbidden, match=r"confined to keys that start with 't\|' or 'p\|ann\|'"
        ):
            principal.check_reach("scan", [keys])
    assert not Principal("all", ADMIN).is_confined
    assert not Principal("all", ADMIN, (prefix(""), prefix("t|"))).is_confined


def test_access_without_tokens_is_open():
    assert Access({}).principal(None).has_role(ADMIN)
    closed = Access({hash_of("right"): Principal("one", READ)})
    assert closed.newcomer is None
    assert closed.principal("right").name == "one"
    for wrong in ("wrong", "", None, 5, "\ud800"):
        with pytest.raises(Unauthorized):
            closed.principal(wrong)
