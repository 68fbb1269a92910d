"""Run the command line as `python -m remit`."""

from remit.cli import main

main()
