"""`python -m proof.soak`."""

import sys

from proof.soak.run import main

if __name__ == "__main__":
    sys.exit(main())
