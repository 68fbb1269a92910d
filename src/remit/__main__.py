"""Run the command line as `python -m remit`."""

try:
    from remit.cli import main
except KeyboardInterrupt:  # as the program itself ends by one
    raise SystemExit(130) from None

main()
