"""The files of the console, by path, each with its content type."""

from importlib.resources import files

_FOLDER = files("pequod.server").joinpath("console")

CONSOLE = {
    path: (_FOLDER.joinpath(name).read_bytes(), f"{kind}; charset=utf-8")
    for path, name, kind in (
        ("/", "index.html", "text/html"),
        ("/console.js", "console.js", "text/javascript"),
        ("/console.css", "console.css", "text/css"),
    )
}
