"""How much one call may do, how much is kept, and how exact times are: the numbers of docs/protocol.md.

The memory engine reads them from here. The scripts state them in Lua, under the same names, and
tests/unit/test_bounds.py compares the two.
"""

from typing import Final

# Limits of one call.
BYTES_PER_CALL: Final = 4 << 20
"""Bytes that a claim, a list or a read returns; the first message always fits."""
RECLAIMED_PER_CALL: Final = 100
"""Expired leases that a claim ends."""
EXPIRED_PER_CALL: Final = 100
"""Expired messages that a call drops, in addition to the number that it stores."""
EXTRA_DROPPED: Final = 100
"""Messages that `on_full="drop_oldest"` drops, in addition to the number that the call stores."""
EXTRA_TRIMMED: Final = 100
"""Dead or finished messages that a call trims, in addition to the number that it adds."""
WINDOWS_PER_CALL: Final = 100
"""Ended dedup windows that a call closes."""
SCHEDULES_PER_CALL: Final = 10
"""Schedules that a claim names."""
READ_PER_CALL: Final = 1000
"""Entries that a claim of a group reads."""
LET_IN_PER_CALL: Final = 1000
"""Delayed publishes that a call adds to the stream."""
BYTES_LET_IN_PER_CALL: Final = 4 << 20
"""About how many bytes of delayed publishes a call adds to the stream."""
INTERVALS_PER_CALL: Final = 100
"""Intervals of a forecast."""
FORGOTTEN_PER_CALL: Final = 100
"""Silent workers that a beat removes."""

# Retention.
ERRORS_KEPT: Final = 5
TIMELINE_KEPT: Final = 20
DETAIL_SIZE: Final = 200
"""Bytes of the detail of an event."""
SHOWN: Final = 1000
"""Workers that are listed."""
GONE_MS: Final = 3_600_000
"""A consumer of a group with nothing pending is removed after this silence."""

# How exact times are.
TOLERANCE_US: Final = 100_000
"""Deliveries that a rate has delayed catch up by at most this."""
GRAIN_US: Final = 10_000
"""Deliveries that a high rate allows within this time come together."""
LOOK_AGAIN_US: Final = 1_000_000
"""A claim that could not name all due schedules asks for the next claim after this."""
LOOKS_BY_AGE_US: Final = 1_000_000
"""A stream is trimmed by age at most this often."""

# Sizes.
LONGEST_KEY: Final = 1024
"""Bytes of a key that another program gave to an entry."""
LEASE_TEXT_SIZE: Final = 65
FLAG_HAS_COUNTS: Final = 128
"""Of a lease: the message has a row in `counts`."""
