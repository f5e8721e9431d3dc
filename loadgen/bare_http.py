"""The yardstick for HTTP: aiohttp with one route that always returns the same bytes."""

import sys

import uvloop
from aiohttp import web


def main() -> None:
    port, body = int(sys.argv[1]), sys.argv[2].encode()

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    async def app() -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/scan", answer)
        return app

    web.run_app(
        app(),
        host="127.0.0.1",
        port=port,
        access_log=None,
        loop=uvloop.new_event_loop(),
        print=lambda *_: print("ready", flush=True),
    )


if __name__ == "__main__":
    main()
