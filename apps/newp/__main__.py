"""`python -m apps.newp`: Newp in the browser."""

import sys
from functools import partial

from apps import run
from apps.newp.app import Newp, fill, install

PORT = 8002


def main() -> int:
    parser = run.options("newp", PORT, "Newp, a news site on Pequod.")
    parser.add_argument(
        "--separate", action="store_true", help="read pages piece by piece, for comparison"
    )
    given = parser.parse_args()
    site = Newp(given.pequod, separate=given.separate, tls=run.tls_of(given.ca))
    installing = partial(install, separate=given.separate)
    return run.run(site, given.host, given.port, installing, fill if given.sample else None)


if __name__ == "__main__":
    sys.exit(main())
