"""Twip, a small Twitter: users follow posters and read one timeline.

s|<user>|<poster>            the user follows the poster
p|<poster>|<time>            a post; times have ten digits
cp|<poster>|<time>           a post of a celebrity
t|<user>|<time>|<poster>     the user's timeline, computed by the joins
"""

from importlib.resources import files

JOINS = files(__name__).joinpath("joins.pq").read_text("utf-8")
