"""Newp, a small Hacker News: articles, votes, comments, and the karma of who comments.

article|<author>|<id>                    title, and on the next line an address or a text
comment|<author>|<id>|<cid>|<commenter>  a comment; ids and cids are times of ten digits
vote|<author>|<id>|<voter>               a vote
page|<author>|<id>|...                   all of an article page, computed by the joins
front|<id>|<author>|...                  the front page, computed by the joins
"""

from importlib.resources import files

JOINS = files(__name__).joinpath("joins.pq").read_text("utf-8")
SEPARATE_JOINS = files(__name__).joinpath("separate.pq").read_text("utf-8")
