"""The entry point of the ledger process: `python -m remit.wiring.run_ledger_process HOME`. Services start it."""

import sys

from remit.wiring.ledger_process import main

if __name__ == "__main__":
    main(*sys.argv[1:])
