"""What holds for all tests."""

from __future__ import annotations

import signal

# Who was started in the background of a script ignores Ctrl-C, and so would every command that these tests start, and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
