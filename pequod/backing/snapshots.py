"""Transactions that the log has told of before queries can see them.

PostgreSQL writes a commit into its log, waits for its synchronous standbys if it has any, and only
then lets queries see it. The log may reach us in between: then a load would bring the rows as they
were before a change that was applied already, and nothing would ever mend them. So a load looks at
its snapshot, and is made again if that lacks a transaction that was applied before it.
"""

_EPOCH = 1 << 32


class Applied:
    """The transactions that were applied, as long as a snapshot may lack them."""

    def __init__(self) -> None:
        self._xids: set[int] = set()  # without the epoch, as the log has them

    def add(self, xid: int) -> None:
        self._xids.add(xid)

    def now(self) -> frozenset[int]:
        """Those that a load which begins now must see."""
        return frozenset(self._xids)

    def lacking(self, snapshot: str, xids: frozenset[int]) -> bool:
        """True if a snapshot lacks one of these; those that it has are forgotten.

        >>> applied = Applied()
        >>> applied.add(7), applied.add(9)
        (None, None)
        >>> applied.lacking("8:10:9", applied.now()), applied.lacking("10:10:", applied.now())
        (True, False)
        """
        least, end, running = snapshot.split(":")
        first, last = int(least), int(end)
        open_xids = {int(xid) for xid in running.split(",") if xid}
        seen = set()
        for xid in xids:
            # The log leaves out the epoch: the number next to the snapshot's end is meant.
            whole = last + (xid - last + _EPOCH // 2) % _EPOCH - _EPOCH // 2
            if whole < first or (whole < last and whole not in open_xids):
                seen.add(xid)
        self._xids -= seen
        return len(seen) < len(xids)
