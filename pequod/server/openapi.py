"""The description of the HTTP interface, `/openapi.json`."""

from functools import cache
from importlib.metadata import version
from typing import Any

from pequod.server.service import ROLE_FOR

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_KEY: Schema = {"type": "string", "minLength": 1, "maxLength": 4096}
_VALUE: Schema = {
    "description": "text, or bytes in base64",
    "oneOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"base64": {"type": "string"}},
            "required": ["base64"],
            "additionalProperties": False,
        },
    ],
}
_ROWS: Schema = {
    "type": "array",
    "items": {
        "description": "[key, value]",
        "type": "array",
        "items": _VALUE,
        "minItems": 2,
        "maxItems": 2,
    },
}
_ERROR: Schema = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"code": _TEXT, "message": _TEXT},
            "required": ["code", "message"],
        }
    },
    "required": ["error"],
}
_STATUS: Schema = {
    "type": "object",
    "properties": {"status": _TEXT},
    "required": ["status"],
}
_CALLS: Schema = {
    "description": "[method, argument...], or a list of such calls; each of them has its own "
    f"result or error. Methods: {', '.join(ROLE_FOR)}.",
    "type": "array",
    "minItems": 1,
}
_OUTCOME: Schema = {
    "description": "a result or an error",
    "type": "object",
    "properties": {"result": {}, "error": _ERROR["properties"]["error"]},
}


def _query(name: str, description: str, schema: Schema, required: bool = False) -> Schema:
    return {
        "name": name,
        "in": "query",
        "description": description,
        "schema": schema,
        "required": required,
    }


_RANGE = [
    _query("prefix", "only keys that start so", _TEXT),
    _query("first", "only keys from this one on", _TEXT),
    _query("last", "only keys before this one", _TEXT),
]
_PAGE = [
    _query(
        "limit", "at most so many rows", {"type": "integer", "minimum": 0, "maximum": 10**15 - 1}
    ),
    _query("reverse", "the last rows first", {"type": "boolean"}),
]
_AFTER = [_query("after", "the token of a write that the answer must have", _TEXT)]


@cache
def document(has_tokens: bool = False) -> Schema:
    """The OpenAPI document of a server, whose writes give tokens or do not."""
    after = _AFTER if has_tokens else []
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pequod",
            "version": version("pequod"),
            "description": "An ordered key-value cache whose views keep themselves fresh.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "security": [{}, {"token": []}],
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "paths": {
            "/v1/get": _read(
                "The value of a key", _VALUE, [_query("key", "the key", _KEY, True), *after], 404
            ),
            "/v1/scan": _read("The rows of a range", _ROWS, _RANGE + _PAGE + after, 413),
            "/v1/count": _read("How many rows a range has", {"type": "integer"}, _RANGE + after),
            "/v1/explain": _read("What a range is made of", {"type": "object"}, _RANGE),
            "/v1/joins": _read("The installed joins", {"type": "array"}, []),
            "/v1/stats": _read("Counts and bytes, by table and by join", {"type": "object"}, []),
            "/v1/watch": _watch(),
            "/rpc": {"post": _rpc()},
            "/healthz": _state("Is it up"),
            "/livez": _state("Is it up"),
            "/readyz": _state("Does it take requests", 503),
            "/metrics": _text("Counts for Prometheus", "text/plain"),
            "/openapi.json": _read("This document", {"type": "object"}, []),
            "/": _text("A page for people", "text/html"),
        },
    }


def _read(summary: str, schema: Schema, parameters: list[Schema], *more: int) -> Schema:
    failures = _failures(400, 401, 403, 503, *more)
    return {
        "get": {
            "summary": summary,
            "parameters": parameters,
            "responses": {"200": _content("the answer", schema), **failures},
        }
    }


def _watch() -> Schema:
    found = {"description": "the events", "content": {"text/event-stream": {"schema": _TEXT}}}
    seen = {"name": "Last-Event-ID", "in": "header", "schema": _TEXT, "required": False}
    return {
        "get": {
            "summary": "A range as it changes: init with all rows, then update and remove",
            "parameters": [*_RANGE, seen],
            "responses": {"200": found, **_failures(400, 401, 403, 413)},
        }
    }


def _rpc() -> Schema:
    results = {"anyOf": [_OUTCOME, {"type": "array", "items": _OUTCOME}]}
    both = {kind: {"schema": _CALLS} for kind in ("application/json", "application/msgpack")}
    return {
        "summary": "Call any method, or a batch of methods",
        "requestBody": {"required": True, "content": both},
        "responses": {
            "200": {
                "description": "the result; in a batch, a result or an error for each call",
                "content": {
                    "application/json": {"schema": results},
                    "application/msgpack": {"schema": results},
                },
            },
            **_failures(400, 401, 403, 404, 408, 409, 413, 415, 503),
        },
    }


def _state(summary: str, *failures: int) -> Schema:
    responses = {str(code): _content("the state", _STATUS) for code in (200, *failures)}
    return {"get": {"summary": summary, "security": [], "responses": responses}}


def _text(summary: str, kind: str) -> Schema:
    found = {"description": "the text", "content": {kind: {"schema": _TEXT}}}
    responses = {"200": found, **_failures(400, 401, 403)}
    return {"get": {"summary": summary, "responses": responses}}


def _failures(*codes: int) -> dict[str, Schema]:
    return {str(code): _content("an error, with a code and a sentence", _ERROR) for code in codes}


def _content(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
