"""What is read and written in a simulated cluster."""

from pequod.cluster.subscriptions import Timing
from pequod.keys import KeyRange, prefix

TIMELINE = "t|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;"
FANS = "f|<poster>|<user> = copy s|<user>|<poster>;"
COUNTS = "c|<poster> = count f|<poster>|<user>;"
LAST = "l|<poster> = max p|<poster>|<time>;"
PULLED = "u|<user>|<time:2>|<poster> = pull copy p|<poster>|<time> check s|<user>|<poster>;"
JOINS = (TIMELINE, FANS, COUNTS, LAST, PULLED)

USERS = "abcd"
TIMING = Timing(beat=0.4, suspect=0.9, silence=1.0, first_pause=0.05, last_pause=0.4)
QUIET_SECONDS = 0.2  # that a write may take where nothing is wrong; less than a beat
CHAOS_SECONDS, HEAL_SECONDS, REQUEST_SECONDS = 3.0, 2.5, 2.5

RANGES = [
    KeyRange("t|", "t}"),
    *(prefix(f"t|{user}|") for user in "ab"),
    KeyRange("t|a|3", "t|a|7"),
    KeyRange("s|", "s}"),
    prefix("s|b|"),
    KeyRange("p|", "p}"),
    prefix("p|c|"),
    KeyRange("p|b", "t|b"),
    prefix("f|b|"),
    KeyRange("c|", "d|"),
    KeyRange("l|", "m|"),
    prefix("u|a|"),
]


class Violation(AssertionError):
    """A server has said what is not true, or has not done what it must."""
