"""`python -m coldtraild.cli` is `coldtrail`."""

from coldtraild.cli import main

main()
