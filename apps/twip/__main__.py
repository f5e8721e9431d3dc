"""`python -m apps.twip`: Twip in the browser."""

import sys

from apps import run
from apps.twip.app import Twip, fill, install

PORT = 8001


def main() -> int:
    parser = run.options("twip", PORT, "Twip, a microblog on Pequod.")
    return run.run(Twip, parser.parse_args(), install, fill)


if __name__ == "__main__":
    sys.exit(main())
