"""``python -m aotcheck.cli``."""

from aotcheck.cli import main

main()
