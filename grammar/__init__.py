"""The grammar of the cache-join language, and nothing else.

It is a package so that `cachejoin.lark` is found from a checkout, an editable install and
a wheel alike.
"""

from importlib.resources import files

CACHEJOIN = files(__name__).joinpath("cachejoin.lark").read_text("utf-8")
