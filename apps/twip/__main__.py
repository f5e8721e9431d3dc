"""`python -m apps.twip`: a narrated session of Twip, in this process and without a server."""

import argparse
import os
import shutil
import sys
import time

from apps.twip import JOINS
from apps.twip.terminal import Narrator
from pequod import Cache, prefix

PAUSE_SECONDS = 1.5
MAX_WIDTH = 100


def main() -> int:
    """Tell the session; the answer is the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m apps.twip",
        description="Twip, a small Twitter on Pequod: a narrated session in the terminal.",
    )
    parser.add_argument("--fast", action="store_true", help="make no pauses")
    fast = parser.parse_args().fast
    watched = sys.stdout.isatty()
    narrator = Narrator(
        Cache(),
        width=min(shutil.get_terminal_size((88, 24)).columns, MAX_WIDTH),
        colour=watched and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
        pause=lambda: time.sleep(PAUSE_SECONDS) if watched and not fast else None,
    )
    try:
        session(narrator)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader has gone, as in `python -m apps.twip | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def session(twip: Narrator) -> None:
    """Ann follows, reads, unfollows; the cache keeps her timeline."""
    timeline = prefix("t|ann|")

    twip.title("1. Install the joins")
    twip.text(JOINS)
    twip.call("add_join", JOINS)
    twip.say("Pequod has checked and named the joins. It computed nothing: nobody has asked yet.")

    twip.title("2. Write base data")
    twip.call("put", "s|ann|bob", "1")
    twip.call("put", "s|ann|liz", "1")
    twip.call("put", "p|bob|0000000100", "Hi")
    twip.call("put", "p|jim|0000000110", "Anyone here?")
    twip.call("put", "p|liz|0000000124", "Hello, wrold!")
    twip.say("Ann follows Bob and Liz; three people posted. These are puts and nothing more.")

    twip.title("3. The first read computes")
    twip.call("scan", *timeline)
    twip.say(
        "Pequod looked up whom Ann follows, copied their posts, and kept the result. "
        "From now on it watches what the timeline was made from."
    )
    twip.call("scan", *timeline)
    twip.say("The second read found the timeline fresh and only read it.")

    twip.title("4. Every put keeps it fresh")
    twip.call("put", "p|bob|0000000130", "Hi again")
    twip.call("scan", "t|ann|0000000125", timeline.last)
    twip.say("The put itself brought the post into Ann's timeline. She reads only what is new.")
    twip.call("put", "p|liz|0000000124", "Hello, world!")
    twip.call("get", "t|ann|0000000124|liz")
    twip.say("A post that is mended is mended wherever it was copied to.")

    twip.title("5. Follow and unfollow")
    twip.call("put", "s|ann|jim", "1")
    twip.call("scan", *timeline)
    twip.say("The follow was noted and waited; this read brought in Jim's posts, old ones too.")
    twip.call("remove", "s|ann|bob")
    twip.call("scan", *timeline)
    twip.say("After the unfollow Bob's posts are gone. No line of Twip's code had to do it.")

    twip.title("6. A celebrity")
    twip.call("put", "s|ann|zoe", "1")
    twip.call("put", "cp|zoe|0000000140", "My new record is out")
    twip.call("scan", *timeline, limit=2, reverse=True)
    twip.say(
        "Zoe's post is not copied for each follower. It is joined into the timeline as it is read, "
        "in its place by time: here the two newest posts."
    )

    twip.title("7. A timeline is not written by hand")
    twip.refused("put", "t|ann|0000000150|eve", "Buy my book")
    twip.say("What a join computes, only base data can change. The put changed nothing.")

    twip.title("8. What Pequod knows about it")
    twip.call("explain", *timeline)
    twip.say("The joins behind the timeline, what they read, and whether it is fresh.")
    twip.call("stats")
    twip.say("Keys, bytes and work done, for each table and each join.")


if __name__ == "__main__":
    sys.exit(main())
