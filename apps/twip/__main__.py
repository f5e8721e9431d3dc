"""`python -m apps.twip`: Twip in the browser."""

import sys

from apps import run
from apps.twip.app import Twip, fill, install

PORT = 8001


def main() -> int:
    parser = run.options("twip", PORT, "Twip, a microblog on Pequod.")
    given = parser.parse_args()
    site = Twip(given.pequod, tls=run.tls_of(given.ca))
    return run.run(site, given.host, given.port, install, fill if given.sample else None)


if __name__ == "__main__":
    sys.exit(main())
